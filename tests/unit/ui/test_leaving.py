# SPDX-License-Identifier: Apache-2.0
"""A browser that leaves ends the answer that it was given."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bespoke.ui.desk import Begun, Desk
from bespoke.ui.server import AnswerResponse
from tests.unit.ui.pages import QUESTION


def test_an_answer_ends_when_its_browser_leaves() -> None:
    ended: list[str] = []

    def endless() -> Iterator[str]:
        try:
            while True:
                yield "more"
        finally:
            ended.append("here")

    async def leaves_after_a_piece() -> None:
        sent = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await sent.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("body"):
                sent.set()

        response = AnswerResponse(Begun(endless()))
        scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}}  # as uvicorn says
        await response(scope, receive, send)
        assert ended == ["here"]

    gc.disable()
    try:
        asyncio.run(asyncio.wait_for(leaves_after_a_piece(), 30))
    finally:
        gc.enable()


def test_an_answer_that_is_ended_leaves_nothing_behind(desk: Desk, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = sorted(tmp_path.iterdir())
    pieces = desk.ask(QUESTION, base=True)
    assert next(pieces)
    assert sorted(tmp_path.iterdir()) != before  # the base model's empty state
    pieces.close()
    assert sorted(tmp_path.iterdir()) == before
    assert desk.view({})["asked"]["list"] == []
