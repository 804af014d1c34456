# SPDX-License-Identifier: Apache-2.0
"""Guided rounds that a cloud leads: one adapter everywhere, files that travel once, and a guard over all edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bespoke_federated.led.guidance
import pytest
from bespoke_federated.cloud.cloud import Cloud
from bespoke_federated.cloud.settings import CloudSettings
from bespoke_federated.directions import Directions, Span, plain, spans
from bespoke_federated.led.documents import Refusal, Standing
from bespoke_federated.settings import RoundSettings
from federation_client import Client, ManualClock, Served
from guided_orders import SETTINGS, guided_by, named, opened, order, sent, step, take_part
from guided_rounds import CODES, COLUMNS, PROBED, SCALE, SCALES, after, codes, offer
from led_edges import Edges, obeyed

from bespoke.bundle.reader import read_bundle
from bespoke.errors import BundleError

Serve = Callable[..., Served]
Lead = Callable[..., Cloud]
Led = tuple[Edges, list[list[Client]]]


@pytest.fixture
def lead(probed: Path, tmp_path: Path, clock: ManualClock) -> Iterator[Lead]:
    """A maker of clouds that have their state one after the other."""
    made: list[Cloud] = []

    def start(**settings: Any) -> Cloud:
        for old in made:
            old.store.close()
        made.clear()
        own = CloudSettings(**{**SETTINGS, **settings})
        made.append(Cloud(read_bundle(probed), tmp_path / "cloud", own, lambda _: None, clock))
        return made[-1]

    yield start
    for cloud in made:
        cloud.store.close()


@pytest.fixture
def led(serve: Serve, probed: Path) -> Led:
    served = [serve(state=f"edge{number}", served_bundle=probed, led=True) for number in range(2)]
    return Edges(*served), [[edge.enrolled() for _ in range(3)] for edge in served]


def guide(cloud: Cloud, seed: int) -> None:
    offer(cloud.store.folder, cloud.adapter.sha256, seed)


def test_edges_and_cloud_follow_guidance_to_one_adapter(lead: Lead, led: Led) -> None:
    cloud, (edges, clients) = lead(rounds=2), led
    edges.ask(cloud, 3)
    assert clients[0][0].ask().measure is None  # the round waits
    taken: list[tuple[int, list[float]]] = []
    for seed in (1, 2):
        guide(cloud, seed)
        edges.ask(cloud, 3)  # opens, and brings what edges say they lack
        one, other = (1.0 * seed, -2.0), (3.0, 0.5)
        directions = [take_part(clients[0], one), take_part(clients[1], other)]
        names = [served.edge.store.edge for served in edges.edges.values() if served is not None]
        by_edge = dict(zip(names, directions, strict=True))
        # Columns are those of all edges, directions of z are of one, in the order of the edges' names, which are drawn.
        assert [by_edge[name] for name in sorted(by_edge)] == [[0, 1, 2], [0, 1, 3]]
        edges.ask(cloud, 2)
        taken.append((seed, [step(of, more) for of, more in zip(one, other, strict=True)]))
        assert cloud.adapter.sha256 == after(taken)
    assert cloud.done
    for edge, of_edge in zip(edges.edges.values(), clients, strict=True):
        assert edge is not None
        assert edge.adapter == after(taken)
        first, _ = of_edge[0].ask(round=0, adapter=edge.initial).rounds
        assert first.guidance is not None
        by_name = {file.name: of_edge[0].fetch(file.sha256).content for file in first.guidance.files}
        assert by_name == {CODES: codes(1).tobytes(), SCALE: SCALES.tobytes()}
    for node in edges.edges:
        brought = [file.sha256 for orders in edges.orders if node in orders for file in orders[node].files]
        assert len(brought) == len(set(brought)) == 3  # the scales are the same in both rounds


def test_an_edge_that_was_away_catches_up_over_guided_rounds(
    lead: Lead, led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound of one byte lets one file pass at a time."""
    monkeypatch.setattr(bespoke_federated.led.guidance, "MOST_FILE_BYTES", 1)
    cloud, (edges, clients) = lead(watchers=0, devices=2, least_edges=1), led
    away = edges.edges.pop(1)
    assert away is not None
    taken = []
    edges.ask(cloud, 2)
    for seed in (1, 2):
        guide(cloud, seed)
        edges.ask(cloud, 4)
        take_part(clients[0][:2], (1.0, 0.5))
        edges.ask(cloud, 3)
        taken.append((seed, [step(1.0), step(0.5)]))
    assert (cloud.adapter.sha256, away.adapter) == (after(taken), away.initial)
    edges.edges[1] = away
    edges.ask(cloud, 8)
    assert away.adapter == after(taken)
    told = [orders[1] for orders in edges.orders if 1 in orders]
    assert max(len(one.files) for one in told) == 1
    assert max(sum(ended.guidance is not None for ended in one.ended) for one in told) == 1


@pytest.mark.parametrize(("of_column", "stops"), [(0.1, True), (4.0, False)])
def test_the_guard_judges_what_all_edges_collected(lead: Lead, led: Led, of_column: float, stops: bool) -> None:
    """Half of the public gradients lie in the span. Of the devices' it is 2 (c / 4)^2 / 2^2, with z . g = 2."""
    cloud, (edges, clients) = lead(), led
    edges.ask(cloud, 2)
    for seed in (1, 2):
        guide(cloud, seed)
        edges.ask(cloud, 3)
        for of_edge in clients:
            take_part(of_edge, (of_column, of_column))
        edges.ask(cloud, 2)
        cloud = lead()
        edges.ask(cloud, 2)
    guide(cloud, 3)
    edges.ask(cloud, 3)
    answer = clients[1][0].ask()
    assert answer.measure is not None
    assert bool(answer.measure.files) is not stops
    row = cloud.store.round(3)
    assert row is not None
    assert row.measured == (plain(cloud.settings, 2) if stops else Directions(COLUMNS, 1, 0.0, PROBED, 0))


def test_a_round_of_the_cloud_waits_no_longer_than_it_should(lead: Lead, led: Led, clock: ManualClock) -> None:
    cloud, (edges, clients) = lead(), led
    edges.ask(cloud, 2)
    clock.wait(49)
    cloud = lead()
    edges.ask(cloud, 2)
    assert clients[0][0].ask().measure is None
    clock.wait(2)
    edges.ask(cloud, 2)
    answer = clients[0][0].ask()
    assert answer.measure is not None
    assert (answer.measure.coefficient, answer.measure.guidance_coefficient, answer.measure.files) == (1.0, 0.0, ())


def test_a_cloud_refuses_guidance_for_a_method_without_it(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="guidance_columns"):
        Cloud(read_bundle(bundle), tmp_path / "cloud", CloudSettings(**SETTINGS))


@pytest.mark.parametrize(
    ("settings", "measured", "expected"),
    [
        ({"devices": 2}, Directions(6, 3), [Span(0, 2, 6, 0), Span(2, 2, 6, 0), Span(4, 2, 6, 0)]),
        ({"devices": 2, "whose": "shared"}, Directions(1, 3), [Span(0, 1, 1, 0)] * 3),
        ({"devices": 2}, Directions(6, 1, 0.5, 2.0), [Span(0, 2, 6, 0), Span(2, 2, 6, 0), Span(4, 2, 6, 0)]),
        ({"watchers": 2}, Directions(10, 1, 0.0, 2.0, 6), [Span(0, 4, 4, 2), Span(0, 4, 6, 2), Span(0, 4, 8, 2)]),
    ],
)
def test_edges_have_spans_of_a_round(settings: dict[str, Any], measured: Directions, expected: list[Span]) -> None:
    found = spans(measured, RoundSettings(**settings, least_devices=1), 3)
    assert found == expected
    assert all(span.is_of(measured) for span in found)


FAULTS = (
    "other bytes",
    "no base64",
    "a file of no round",
    "another shape",
    "codes of -8",
    "half a block",
    "another name",
    "all are watched",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_guidance_that_does_not_fit_is_refused_and_changes_nothing(serve: Serve, probed: Path, fault: str) -> None:
    guidance, files = guided_by(1), [sent(codes(1)), sent(SCALES)]
    changed = {"another shape": codes(1)[:-1], "codes of -8": codes(1) & 0xF0}.get(fault)
    if fault == "other bytes":
        files[0] = files[0].model_copy(update={"data": sent(codes(2)).data})
    elif fault == "no base64":
        files[0] = files[0].model_copy(update={"data": "*"})
    elif fault == "a file of no round":
        files.append(sent(codes(2)))
    elif changed is not None:
        files[0] = sent(changed)
        guidance = guidance.model_copy(update={"files": (named(CODES, changed), guidance.files[1])})
    elif fault == "half a block":
        guidance = guidance.model_copy(update={"files": guidance.files[:1]})
    elif fault == "another name":
        guidance = guidance.model_copy(update={"files": (named("guidance.block_09.codes", codes(1)),)})
    else:
        guidance = guidance.model_copy(update={"watched": COLUMNS})
    edge = serve(served_bundle=probed, led=True)
    before = obeyed(edge, order())
    assert isinstance(obeyed(edge, order(opened=opened(1, guidance), files=tuple(files))), Refusal)
    assert obeyed(edge, order()) == before
    assert not list((edge.edge.store.folder / "files").iterdir())
    assert edge.edge.store.last_round() is None
    good = obeyed(edge, order(opened=opened(1), files=(sent(codes(1)), sent(SCALES))))
    assert isinstance(good, Standing)
    assert good.collected is not None


def test_an_edge_without_guidance_in_its_plan_refuses_it(serve: Serve) -> None:
    edge = serve(led=True)
    assert isinstance(obeyed(edge, order(opened=opened(1), files=(sent(codes(1)), sent(SCALES)))), Refusal)


def test_a_file_that_is_here_for_something_else_is_no_guidance(serve: Serve, probed: Path) -> None:
    edge, bad = serve(served_bundle=probed, led=True), codes(1) & 0xF0
    (edge.edge.store.folder / "files" / sent(bad).sha256).write_bytes(bad.tobytes())
    guidance = guided_by(1).model_copy(update={"files": (named(CODES, bad), named(SCALE, SCALES))})
    assert isinstance(obeyed(edge, order(opened=opened(1, guidance), files=(sent(SCALES),))), Refusal)
    assert edge.edge.store.last_round() is None
