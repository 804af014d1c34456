# SPDX-License-Identifier: Apache-2.0
"""A cloud and edges that it leads: one adapter everywhere, through deadlines, edges that are away, and restarts of either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bespoke_federated.cloud.cloud import Cloud
from bespoke_federated.cloud.settings import CloudSettings
from bespoke_federated.led.documents import Ended, Opened, Order, Refusal, Standing
from federation_client import Client, ManualClock, Served
from led_edges import Edges, obeyed, take_part
from small_bundle import by_hand

from bespoke.bundle.reader import read_bundle
from bespoke.errors import ConfigError, StateError
from bespoke.rules.federation import coefficients_text, rounded

RATE = 0.5
Lead = Callable[..., Cloud]


@pytest.fixture
def lead(bundle: Path, tmp_path: Path, clock: ManualClock) -> Iterator[Lead]:
    """A maker of clouds that have their state one after the other."""
    made: list[Cloud] = []

    def start(**settings: Any) -> Cloud:
        for old in made:
            old.store.close()
        made.clear()
        own = {"rounds": 3, "devices": 2, "least_devices": 2, "least_edges": 2, "rate": RATE, "half_every": 0}
        settings = {**own, "deadline_seconds": 100.0, **settings}
        made.append(Cloud(read_bundle(bundle), tmp_path / "cloud", CloudSettings(**settings), lambda _: None, clock))
        return made[-1]

    yield start
    for cloud in made:
        cloud.store.close()


def two_edges(serve: Callable[..., Served]) -> tuple[Edges, list[list[Client]]]:
    served = [serve(state=f"edge{number}", led=True) for number in range(2)]
    return Edges(*served), [[edge.enrolled() for _ in range(2)] for edge in served]


def numbers_of(round_number: int, directions: int = 4) -> dict[int, float]:
    rng = np.random.default_rng(round_number)
    return {direction: float(rng.normal()) for direction in range(directions)}


def steps(sent: dict[int, float], directions: int = 4) -> list[float]:
    return [rounded(RATE / len(sent) * sent[number]) if number in sent else 0.0 for number in range(directions)]


def test_all_edges_and_the_cloud_come_to_one_adapter(serve: Callable[..., Served], lead: Lead) -> None:
    cloud, (edges, clients) = lead(half_every=2), two_edges(serve)
    edges.ask(cloud, 2)  # says hello, then opens
    taken = []
    for number in range(1, 4):
        sent = [take_part(of_edge, numbers_of(number), 2) for of_edge in clients]
        assert not sent[0].keys() & sent[1].keys()  # no direction is measured twice
        taken.append(steps(sent[0] | sent[1]))
        edges.ask(cloud, 2)  # collects, then ends and opens the next one
    adapter = by_hand(taken, half=2)
    assert (cloud.done, cloud.adapter.sha256) == (True, adapter)
    for edge, of_edge in zip(edges.edges.values(), clients, strict=True):
        assert edge is not None
        assert edge.adapter == adapter
        last = [client.ask() for client in of_edge][-1]
        assert (last.done, of_edge[-1].adapter) == (True, adapter)
    assert cloud.store.most_rounds() == 3


def test_a_median_is_taken_over_the_devices_of_all_edges(serve: Callable[..., Served], lead: Lead) -> None:
    cloud, (edges, clients) = lead(whose="shared", combine="median", rounds=1), two_edges(serve)
    edges.ask(cloud, 2)
    numbers = iter((0.5, 0.25, -4.0, 0.75))
    for client in clients[0] + clients[1]:
        client.take_part(next(numbers))
    edges.ask(cloud, 2)
    assert cloud.adapter.sha256 == by_hand([[rounded(RATE * 0.375)]])
    assert edges.edges[1] is not None
    assert edges.edges[1].adapter == cloud.adapter.sha256


def test_sums_of_shared_directions_are_added_up(serve: Callable[..., Served], lead: Lead) -> None:
    cloud, (edges, clients) = lead(whose="shared", directions=2, rounds=1), two_edges(serve)
    edges.ask(cloud, 2)
    for client in clients[0] + clients[1]:
        client.take_part(0.25, -0.5)
    edges.ask(cloud)
    assert all(share.collected and not share.collected.numbers for share in cloud.store.shares(1))
    assert cloud.adapter.sha256 == by_hand([[rounded(RATE / 2 * 0.25), rounded(RATE / 2 * -0.5)]])


def test_an_edge_that_is_away_is_left_out_and_follows_later(
    serve: Callable[..., Served], lead: Lead, clock: ManualClock
) -> None:
    cloud, (edges, clients) = lead(), two_edges(serve)
    edges.ask(cloud, 2)
    away = edges.edges[1]
    assert away is not None
    take_part(clients[1], numbers_of(1), 2)  # it has closed its share, and nobody hears of it
    edges.edges[1] = None
    sent = take_part(clients[0], numbers_of(1), 2)
    edges.ask(cloud)
    assert cloud.store.last_ended() == 0
    clock.wait(101)
    edges.ask(cloud, 2)  # the deadline has passed, so edges close; the second time without the one that is away
    assert cloud.store.last_ended() == 1
    assert cloud.adapter.sha256 == by_hand([steps(sent)])
    edges.edges[1] = away
    edges.ask(cloud, 2)
    assert (away.adapter, away.edge.store.totals()["late"]) == (cloud.adapter.sha256, 2)
    assert not away.edge.store.numbers(1)
    first = edges.edges[0]
    assert first is not None
    assert first.edge.store.totals() == {"counted": 2, "late": 0, "most_rounds": 1}


@pytest.mark.parametrize("stopped", ["cloud", "edges", "both"])
def test_either_side_goes_on_after_a_restart(serve: Callable[..., Served], lead: Lead, stopped: str) -> None:
    cloud, (edges, clients) = lead(), two_edges(serve)
    taken = []

    def restart() -> None:
        nonlocal cloud
        if stopped != "edges":
            cloud = lead()
        if stopped != "cloud":
            for number, edge in edges.edges.items():
                assert edge is not None
                edge.close()
                edges.edges[number] = serve(state=f"edge{number}", led=True)
                for client in clients[number]:
                    client.served = edges.edges[number]  # type: ignore[assignment]

    edges.ask(cloud, 2)
    for number in range(1, 4):
        restart()
        first = take_part(clients[0], numbers_of(number), 2)
        restart()
        edges.ask(cloud, 2)  # one edge has closed its share
        restart()
        edges.ask(cloud, 2)
        taken.append(steps(first | take_part(clients[1], numbers_of(number), 2)))
        restart()
        edges.ask(cloud, 3)
    restart()
    edges.ask(cloud, 2)
    assert cloud.adapter.sha256 == by_hand(taken)
    for edge in edges.edges.values():
        assert edge is not None
        assert (edge.adapter, edge.edge.store.totals()["counted"]) == (by_hand(taken), 6)


def test_a_deadline_with_too_few_numbers_begins_again(
    serve: Callable[..., Served], lead: Lead, clock: ManualClock
) -> None:
    cloud, (edges, clients) = lead(least_devices=3), two_edges(serve)
    edges.ask(cloud, 2)
    sent = take_part(clients[0], numbers_of(1), 2)
    clock.wait(101)
    edges.ask(cloud, 2)
    assert cloud.store.last_ended() == 0
    sent |= take_part(clients[1], numbers_of(1), 1)
    edges.ask(cloud)
    clock.wait(101)
    edges.ask(cloud, 2)
    assert cloud.adapter.sha256 == by_hand([steps(sent)])
    clients[1][1].ask()
    assert edges.edges[1] is not None
    assert edges.edges[1].edge.store.totals()["late"] == 0


def order(**more: Any) -> Order:
    return Order(**{"task": "words", "initial": by_hand([]), "rounds": 3, **more})


OPENED = Opened(number=1, groups=4, each=1, first_group=2, own_groups=2, devices=2)


def ended(number: int, taken: list[list[float]], **changes: Any) -> Ended:
    text = coefficients_text(taken[number - 1])
    values = {"half": False, "adapter": by_hand(taken[:number]), "counted": True, **changes}
    return Ended(number=number, groups=4, each=1, coefficients=text, **values)


def test_orders_that_come_twice_or_late_change_nothing_more(serve: Callable[..., Served]) -> None:
    edge = serve(led=True)
    clients = [edge.enrolled() for _ in range(2)]
    opens = order(opened=OPENED)
    assert obeyed(edge, opens) == obeyed(edge, opens)
    sent = take_part(clients, numbers_of(1), 2)
    closed = obeyed(edge, opens)
    assert isinstance(closed, Standing)
    assert closed.collected is not None
    assert closed.collected.closed
    assert dict(enumerate(closed.collected.sums, closed.collected.first)) == sent
    assert obeyed(edge, opens.model_copy(update={"close": True})) == closed
    ends = order(ended=(ended(1, [steps(sent)]),))
    after = obeyed(edge, ends)
    assert isinstance(after, Standing)
    assert (after.ended, after.adapter, after.collected) == (1, by_hand([steps(sent)]), None)
    assert obeyed(edge, ends) == after
    late = obeyed(edge, opens)  # an order that was on its way for long
    assert isinstance(late, Refusal)
    assert obeyed(edge, ends) == after


def test_what_an_edge_cannot_follow_is_refused_and_changes_nothing(serve: Callable[..., Served]) -> None:
    edge, taken = serve(led=True), [[0.5, 0.0, 0.0, 0.0], [0.25, 0.0, 0.0, 0.0]]
    before = obeyed(edge, order())
    for wrong, said in (
        (order(task="others"), "another bundle"),
        (order(initial="0" * 64), "another bundle"),
        (order(ended=(ended(2, taken),)), "round 2"),
        (order(opened=OPENED.model_copy(update={"number": 2})), "round 2"),
        (order(opened=OPENED.model_copy(update={"first_group": 3})), "a share"),
    ):
        refused = obeyed(edge, wrong)
        assert isinstance(refused, Refusal)
        assert said in refused.got
        assert obeyed(edge, order()) == before
    obeyed(edge, order(opened=OPENED))
    refused = obeyed(edge, order(opened=OPENED.model_copy(update={"groups": 8})))
    assert isinstance(refused, Refusal)
    followed = obeyed(edge, order(ended=(ended(1, taken), ended(2, taken))))
    assert isinstance(followed, Standing)
    assert followed.adapter == by_hand(taken)
    assert isinstance(obeyed(edge, order(ended=(ended(1, taken[::-1]),))), Refusal)


def test_an_edge_that_comes_to_another_adapter_goes_no_further(serve: Callable[..., Served]) -> None:
    edge, taken = serve(led=True), [[0.5, 0.0, 0.0, 0.0]]
    with pytest.raises(StateError, match="another adapter after round 1"):
        obeyed(edge, order(ended=(ended(1, taken, adapter="0" * 64),)))
    edge.close()
    with pytest.raises(StateError, match="another adapter after round 1"):
        serve(led=True)


def test_a_state_is_led_or_not_for_good(serve: Callable[..., Served]) -> None:
    serve(state="led", led=True).close()
    serve(state="alone").close()
    with pytest.raises(StateError, match="led"):
        serve(state="led")
    with pytest.raises(StateError, match="led"):
        serve(state="alone", led=True)


def test_an_edge_with_the_rounds_of_another_cloud_is_not_led(serve: Callable[..., Served], lead: Lead) -> None:
    cloud, strange = lead(least_edges=1), serve(led=True)
    obeyed(strange, order(ended=(ended(1, [[0.5, 0.0, 0.0, 0.0]]),)))
    Edges(strange).ask(cloud, 3)
    assert cloud.store.last_round() is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"least_devices": 5}, "least_devices"),
        ({"least_edges": 3000}, "3000 edges"),
        ({"combine": "median"}, "combine"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(lead: Lead, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        lead(**settings)
