# SPDX-License-Identifier: Apache-2.0
"""A led edge, and a cloud, that end before any statement of their databases in guided rounds: both go on to one adapter."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from bespoke_federated.cloud.cloud import Cloud
from bespoke_federated.cloud.settings import CloudSettings
from federation_client import Served
from full_counts import FULL
from guided_orders import SETTINGS, ended, guided_by, opened, order, sent, step, take_part
from guided_rounds import SCALES, after, codes, offer
from led_edges import Edges, rounds_of
from test_led_kills import may_come, obeyed_until_killed

from bespoke.bundle.reader import read_bundle

Serve = Callable[..., Served]


@pytest.mark.parametrize("statement", range(1, 91, 6 if FULL else 18))
def test_an_edge_that_is_killed_in_guided_rounds_goes_on(
    serve: Serve, probed: Path, tmp_path: Path, statement: int
) -> None:
    taken = [(1, [0.5, 0.25]), (2, [-0.25, 0.5])]
    orders = [
        order(opened=opened(1)),
        order(opened=opened(1), files=(sent(codes(1)), sent(SCALES)), close=True),
        order(ended=(ended(taken[:1]),)),
        order(ended=(ended(taken),), files=(sent(codes(2)),)),
    ]
    process = os.fork()
    if not process:
        try:
            obeyed_until_killed(probed, tmp_path / "state", orders, statement)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    again = serve(served_bundle=probed, led=True)
    answers = [rounds_of(again).obey(one) for one in orders if may_come(again, one)]
    assert (answers[-1].ended, answers[-1].adapter) == (2, after(taken))
    kept = [again.edge.store.file(one.sha256) for one in guided_by(2).files]
    assert [(file.kind, file.round) for file in kept if file] == [("guidance", 2)] * 2


@pytest.mark.parametrize("statement", range(1, 41, 5 if FULL else 15))
@pytest.mark.parametrize("during", ["opening", "ending"])
def test_a_cloud_that_is_killed_in_guided_rounds_goes_on(
    serve: Serve, probed: Path, tmp_path: Path, during: str, statement: int
) -> None:
    settings = CloudSettings(**{**SETTINGS, "rounds": 2, "guidance_wait_seconds": 1e6, "deadline_seconds": 1e6})

    def cloud() -> Cloud:
        return Cloud(read_bundle(probed), tmp_path / "cloud", settings, lambda _: None)

    def both() -> list[Served]:
        return [serve(state=name, served_bundle=probed, led=True) for name in ("a", "b")]

    def numbers_come(edges: list[Served]) -> None:
        for number, edge in enumerate(edges, 1):
            take_part([edge.enrolled() for _ in range(3)], (1.0 * number, 0.5))

    edges = both()
    with cloud() as first:
        Edges(*edges).ask(first, 2)
        offer(first.store.folder, first.adapter.sha256, 1)
        if during == "ending":
            Edges(*edges).ask(first, 3)
            numbers_come(edges)
    for edge in edges:
        edge.close()
    process = os.fork()
    if not process:
        try:
            logging.disable()
            again, left = cloud(), [statement]
            run = again.store._database.set_trace_callback
            run(lambda _: left.__setitem__(0, left[0] - 1) or (os._exit(9) if left[0] <= 0 else None))
            served = Edges(*both())
            while True:
                served.ask(again)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    edges = both()
    with cloud() as last:
        those = Edges(*edges)
        those.ask(last, 4)
        if during == "opening":
            numbers_come(edges)
            those.ask(last, 2)
        assert last.store.last_ended() == 1
        expected = after([(1, [step(1.0, 2.0), step(0.5, 0.5)])])
        assert last.adapter.sha256 == expected
        assert [edge.adapter for edge in edges] == [expected] * 2
