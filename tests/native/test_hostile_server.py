# SPDX-License-Identifier: Apache-2.0
"""What a server may not send changes nothing on a device, and what comes damaged comes again."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.bundle.signature import generate_key, signed_document
from bespoke.errors import BespokeError, Cancelled, DataError, SignatureError
from tests.native.federation_devices import (
    PRIVATE,
    exact,
    joined,
    model,
    server,
)
from tests.support import federation as f
from tests.support.federation_server import Server

__all__ = ["exact", "model", "server"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"task": "others"}, "task"),
        ({"surprise": 1}, "surprise"),
        ({"measure": {"round": 5}}, "measure"),
        ({"wait_seconds": -1.0}, "wait_seconds"),
        (
            {
                "rounds": [
                    {
                        "first": 3,
                        "count": 1,
                        "directions": 1,
                        "coefficients": "AAAA",
                        "guidance": None,
                        "half": False,
                        "adapter": "0" * 64,
                    }
                ]
            },
            "round 3",
        ),
        (
            {
                "rounds": [
                    {
                        "first": 1,
                        "count": 2,
                        "directions": 1,
                        "coefficients": "AAAA",
                        "guidance": None,
                        "half": False,
                        "adapter": "0" * 64,
                    }
                ]
            },
            "3 bytes",
        ),
        (
            {
                "rounds": [
                    {
                        "first": 1,
                        "count": 1,
                        "directions": 1,
                        "coefficients": "AAAB",
                        "guidance": None,
                        "half": False,
                        "adapter": "0" * 64,
                    }
                ]
            },
            "finer",
        ),
        (
            {
                "rounds": [
                    {
                        "first": 1,
                        "count": 1,
                        "directions": 1,
                        "coefficients": "f4AA",
                        "guidance": None,
                        "half": False,
                        "adapter": "0" * 64,
                    }
                ]
            },
            "finite",
        ),
        (
            {
                "rounds": [
                    {
                        "first": 1,
                        "count": 1,
                        "directions": 1,
                        "coefficients": "A*AA",
                        "guidance": None,
                        "half": False,
                        "adapter": "0" * 64,
                    }
                ]
            },
            "base64",
        ),
        (
            {
                "rounds": [
                    {
                        "first": 1,
                        "count": 2**31 - 1,
                        "directions": 4096,
                        "coefficients": "",
                        "guidance": None,
                        "half": False,
                        "adapter": "0" * 64,
                    }
                ]
            },
            "bytes",
        ),
    ],
)
def test_a_document_that_no_server_may_send_changes_nothing(
    model: PersonalModel, server: Server, change: dict[str, Any], what: str
) -> None:
    joined(model)
    document = server.document(0).model_dump(mode="json") | change
    request = model.federation.request()
    with pytest.raises(DataError, match=what):
        model.federation.respond(request, signed_document(json.dumps(document), PRIVATE))
    assert model.federation.request() == request


def test_what_others_signed_changes_nothing(model: PersonalModel, server: Server, exact: Path) -> None:
    joined(model)
    request = model.federation.request()
    right = json.loads(server.answer(request.body, server.measurement()))
    other = json.loads(Server(exact, generate_key()[0]).answer(request.body))
    for answer in (other, {**right, "payload": right["payload"] + " "}, {**right, "signature": "00" * 64}):
        with pytest.raises(SignatureError):
            model.federation.respond(request, json.dumps(answer).encode())
    for answer in (b"", b"[]", b"{}", b'{"payload": 3, "signature": "00"}', b"\xff\xfe", b"[" * 100_000):
        with pytest.raises(DataError):
            model.federation.respond(request, answer)
    with pytest.raises(BespokeError):
        model.federation.respond(replace(request, step="wait"), b"")
    assert model.federation.request() == request
    assert model.federation.take_part().not_measured_because == "not_asked"


def test_a_file_that_is_damaged_or_cut_comes_again(model: PersonalModel, server: Server, exact: Path) -> None:
    joined(model)
    guidance = f.guidance(exact)
    asked = server.measurement(files=server.received(guidance), guidance_coefficient=0.1)
    request = model.federation.request()
    model.federation.respond(request, server.answer(request.body, asked))
    first = model.federation.request()
    assert (first.step, first.offset) == ("fetch", 0)
    data = server.fetched(first)
    model.federation.respond(first, data[:7])
    assert model.federation.request().offset == 7
    model.federation.respond(first, data[:9])  # late, and already there
    assert model.federation.request().offset == 7
    with pytest.raises(DataError, match="other bytes"):
        model.federation.respond(model.federation.request(), b"x" * (first.size - 7))
    assert model.federation.request() == first
    with pytest.raises(DataError, match="at most"):
        model.federation.respond(first, data + b"more")
    with pytest.raises(Cancelled):
        model.federation.take_part(seconds=0.5)  # the files do not come
    while (wanted := model.federation.request()).step == "fetch":
        model.federation.respond(wanted, server.fetched(wanted))
    assert model.federation.take_part().measured == 1


def test_a_file_that_the_server_no_longer_has_is_asked_for_once(
    model: PersonalModel, server: Server, exact: Path
) -> None:
    joined(model)
    guidance = f.guidance(exact)
    asked = server.measurement(files=server.received(guidance), guidance_coefficient=0.1)
    first = model.federation.request()
    model.federation.respond(first, server.answer(first.body, asked))
    wanted = model.federation.request()
    model.federation.respond(wanted, server.fetched(wanted)[:7])
    model.federation.respond(model.federation.request(), b"")
    assert model.federation.request() == first
    model.federation.respond(wanted, b"")  # late: nothing is wanted now
    assert model.federation.request() == first
    model.federation.respond(first, server.answer(first.body, asked))
    while (wanted := model.federation.request()).step == "fetch":
        model.federation.respond(wanted, server.fetched(wanted))
    model.federation.respond(replace(wanted, step="fetch", sha256=asked.files[0].sha256), b"")  # late: it is there
    assert model.federation.take_part().measured == 1


def test_a_computation_does_not_wait_for_a_file_that_the_server_no_longer_has(
    model: PersonalModel, server: Server, exact: Path
) -> None:
    joined(model)
    asked = server.measurement(files=server.received(f.guidance(exact)), guidance_coefficient=0.1)
    first = model.federation.request()
    model.federation.respond(first, server.answer(first.body, asked))
    wanted = model.federation.request()
    gone = threading.Timer(0.5, lambda: model.federation.respond(wanted, b""))
    gone.start()
    with pytest.raises(DataError, match="no such file any more"):
        model.federation.take_part(seconds=300)
    gone.join()
    assert model.federation.request() == first


def test_a_lost_file_of_the_last_document_does_not_end_the_task(model: PersonalModel, server: Server) -> None:
    joined(model)
    server.end_round([0.01])
    first = model.federation.request()
    last = server.document(0, rounds=(), snapshot=server.snapshot(), done=True)
    model.federation.respond(first, server.signed(last))
    model.federation.respond(model.federation.request(), b"")
    assert model.federation.request() == first


def test_an_adapter_that_differs_at_the_end_of_the_task_is_replaced(model: PersonalModel, server: Server) -> None:
    joined(model)
    server.end_round([0.01])
    (span,) = server.document(0).rounds
    wrong = server.document(0, rounds=(span.model_copy(update={"adapter": "0" * 64}),), done=True)
    model.federation.respond(model.federation.request(), server.signed(wrong))
    assert model.federation.take_part().differs
    wanted = model.federation.request()
    assert json.loads(wanted.body)["differs"]
    right = server.document(1, rounds=(), snapshot=server.snapshot(), done=True)
    model.federation.respond(wanted, server.signed(right))
    while (wanted := model.federation.request()).step == "fetch":
        model.federation.respond(wanted, server.fetched(wanted))
    assert not model.federation.take_part().differs
    assert model.federation.request().step == "done"
