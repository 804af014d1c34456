# SPDX-License-Identifier: Apache-2.0
"""A led edge, and a cloud, that end before any statement of their databases: what was told stays, and both go on."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from bespoke_federated.cloud.cloud import Cloud
from bespoke_federated.cloud.settings import CloudSettings
from bespoke_federated.edge import Edge
from bespoke_federated.led.documents import Opened, Order
from bespoke_federated.led.rounds import LedRounds
from bespoke_federated.settings import RoundSettings
from federation_client import Served
from full_counts import FULL
from led_edges import Edges, rounds_of, take_part
from small_bundle import by_hand
from test_led import ended, numbers_of, order, steps
from tests.support.federation_key import PRIVATE

from bespoke.bundle.reader import read_bundle
from bespoke.rules.federation import rounded

OPENED = Opened(number=1, groups=4, each=1, first_group=0, own_groups=2, devices=2)


@pytest.mark.parametrize("statement", range(1, 60, 4 if FULL else 12))
def test_an_edge_that_is_killed_anywhere_answers_the_same(
    serve: Callable[..., Served], bundle: Path, tmp_path: Path, statement: int
) -> None:
    """Orders come again until they are answered. The process ends before the n-th statement, in a transaction or between two."""
    edge = serve(led=True)
    sent = take_part_in_first(edge)
    edge.close()
    taken = [steps(sent), [0.0, 0.25, 0.0, 0.0]]
    orders = [
        order(opened=OPENED, close=True),
        order(ended=(ended(1, taken),)),
        order(opened=OPENED.model_copy(update={"number": 2})),
        order(ended=(ended(2, taken, half=False, counted=False),)),
    ]
    process = os.fork()
    if not process:
        try:
            obeyed_until_killed(bundle, tmp_path / "state", orders, statement)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    again = serve(led=True)
    answers = [rounds_of(again).obey(one) for one in (orders[0], *orders) if may_come(again, one)]
    assert (answers[-1].ended, answers[-1].adapter) == (2, by_hand(taken))
    assert again.edge.store.totals() == {"counted": 2, "late": 0, "most_rounds": 1}
    assert dict(again.edge.store.numbers(1)) == {first: [number] for first, number in sent.items()}


def take_part_in_first(edge: Served) -> dict[int, float]:
    rounds_of(edge).obey(order(opened=OPENED))
    return take_part([edge.enrolled() for _ in range(2)], numbers_of(1), 2)


def may_come(edge: Served, one: Order) -> bool:
    """Whether a cloud would send this: it opens no round that the edge has said to have ended."""
    last = edge.edge.store.last_ended()
    return one.opened is None or one.opened.number > (last.number if last else 0)


def obeyed_until_killed(bundle: Path, state: Path, orders: list[Order], statement: int) -> None:
    logging.disable()
    edge = Edge(read_bundle(bundle), PRIVATE, state, RoundSettings(half_every=0), led=True)
    left = [statement]
    run = edge.store._database.set_trace_callback
    run(lambda _: left.__setitem__(0, left[0] - 1) or (os._exit(9) if left[0] <= 0 else None))
    assert isinstance(edge.rounds, LedRounds)
    for one in orders:
        edge.rounds.obey(one)
    while True:  # all orders took fewer statements
        edge.rounds.obey(order())
        threading.Event().wait(0)


@pytest.mark.parametrize("statement", range(1, 50, 4 if FULL else 12))
def test_a_cloud_that_is_killed_anywhere_goes_on(
    serve: Callable[..., Served], bundle: Path, tmp_path: Path, statement: int
) -> None:
    """The cloud ends before the n-th statement behind the start of round 1, for which all numbers are there."""
    settings = CloudSettings(rounds=2, devices=1, least_devices=1, least_edges=2, rate=0.5, half_every=0)

    def cloud() -> Cloud:
        return Cloud(read_bundle(bundle), tmp_path / "cloud", settings, lambda _: None)

    edges = Edges(serve(state="a", led=True), serve(state="b", led=True))
    clients = [edge.enrolled() for edge in edges.edges.values() if edge]
    with cloud() as first:
        edges.ask(first, 2)
    sent = take_part(clients, numbers_of(1), 2)
    for edge in edges.edges.values():
        assert edge is not None
        edge.close()
    process = os.fork()
    if not process:
        try:
            logging.disable()
            again, left = cloud(), [statement]
            run = again.store._database.set_trace_callback
            run(lambda _: left.__setitem__(0, left[0] - 1) or (os._exit(9) if left[0] <= 0 else None))
            served = Edges(serve(state="a", led=True), serve(state="b", led=True))
            while True:
                served.ask(again)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    edges = Edges(serve(state="a", led=True), serve(state="b", led=True))
    with cloud() as last:
        edges.ask(last, 4)
        assert last.store.last_ended() == 1
        adapter = last.adapter.sha256
    assert adapter == by_hand([[rounded(0.25 * sent[0]), rounded(0.25 * sent[1])]])
    assert [edge.adapter for edge in edges.edges.values() if edge] == [adapter] * 2
