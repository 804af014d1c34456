# SPDX-License-Identifier: Apache-2.0
"""All plans of a bundle: costs of its first target, the budget asked again with what was measured, estimates and dial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bespoke import Budget, Lora, Personalizer, Training
from bespoke.compiler.plans import Plans
from bespoke.errors import PlanDoesNotFit
from bespoke.graph.trace import Graph, Tracer
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import Costs, Workspace
from tests.models import tiny_config, tiny_model

COSTS = Costs(constant_bytes=1000, results_in_place=True)
Made = Callable[..., Plans]

pytestmark = pytest.mark.xdist_group("plans")  # they share a tracer


@pytest.fixture(scope="module")
def tracer() -> Tracer:
    return Tracer()


@pytest.fixture
def made(tmp_path: Path, tracer: Tracer) -> Made:
    """Plans of a tiny model for a target of COSTS, which compiles nothing."""

    def plans(memory_mb: float | None, costs: Costs = COSTS, methods: Any = "mesp") -> Plans:
        tiny_config("llama", num_hidden_layers=2).save_pretrained(tmp_path)
        training = Training(sequence_lengths=(70,), batch_size=2)
        personalizer = Personalizer(tmp_path, methods, lora=Lora(rank=2), training=training, budget=Budget(memory_mb=memory_mb))
        target = replace(personalizer.request.targets[0], name="costly", plugin=SimpleNamespace(costs=costs))
        request = replace(personalizer.request, targets=(target,))
        found = Plans(request, ModelSpec(read_config(tmp_path), request.lora))
        found.tracer = tracer
        return found

    return plans


class Measures:
    """Compiles by writing down what graphs should take, times a factor."""

    def __init__(self, factor: Callable[[Graph], float]) -> None:
        self.factor = factor
        self.met: dict[str, Workspace] = {}
        self.calls = 0

    def __call__(self, graphs: Sequence[Graph]) -> dict[str, Workspace]:
        self.calls += 1
        self.met |= {graph.key: self._halves(int(graph.in_place_bytes * self.factor(graph))) for graph in graphs}
        return self.met

    @staticmethod
    def _halves(size: int) -> Workspace:
        return Workspace(size - size // 2, size // 2)


def quiet(stage: str, done: int, total: int) -> None:
    """No progress."""


def test_estimates_are_made_for_the_costs_of_the_first_target(made: Made) -> None:
    (estimated,) = made(None).estimated(quiet).values()
    e = estimated.plan.estimate
    assert e.constant_bytes == 1000
    in_place = {graph.key: graph.workspace_bytes for graph in estimated.plan.graphs}
    (whole,) = made(None, Costs(constant_bytes=1000)).estimated(quiet).values()
    larger = [graph for graph in whole.plan.graphs if graph.key in in_place and graph.workspace_bytes > in_place[graph.key]]
    assert len(larger) > 10


def test_measured_workspaces_that_no_longer_fit_give_another_plan(made: Made) -> None:
    fastest = next(iter(made(None).estimated(quiet).values()))
    plans = made(fastest.peak / 1e6)
    estimated = plans.estimated(quiet)
    measures = Measures(lambda graph: 2.0)
    (fitted,) = plans.fitted(estimated, measures).values()
    (before,) = estimated.values()
    remeasured = {graph.key: (graph.workspace_bytes, graph.engine_bytes) for graph in fitted.plan.graphs}
    assert remeasured == {key: measures.met[key] for key in remeasured}
    assert fitted.peak <= fastest.peak
    assert fitted.plan.choices != before.plan.choices
    assert fitted.seconds > before.seconds


def test_measured_workspaces_that_leave_room_are_used(made: Made) -> None:
    plans = made(1.0)
    estimated = plans.estimated(quiet)
    (fitted,) = plans.fitted(estimated, Measures(lambda graph: 0.1)).values()
    assert fitted.seconds < next(iter(estimated.values())).seconds


def test_workspaces_that_fit_nowhere_are_refused_with_the_measured_smallest(made: Made) -> None:
    plans = made(1.0)
    with pytest.raises(PlanDoesNotFit, match="at least") as caught:
        plans.fitted(plans.estimated(quiet), Measures(lambda graph: 50.0))
    smallest = next(iter(plans.planners(Measures(lambda graph: 50.0)(list(plans.tracer.graphs.values()))).values())).smallest()
    assert f"{smallest.peak / 1e6:.1f} MB" in caught.value.expected


def test_without_a_budget_nothing_is_planned_again(made: Made) -> None:
    plans = made(None)
    estimated = plans.estimated(quiet)
    measures = Measures(lambda graph: 50.0)
    assert plans.fitted(estimated, measures) is estimated
    assert measures.calls == 1


def test_an_estimate_tells_the_ends_of_what_can_be_had(made: Made) -> None:
    plans = made(1.2, methods=["mesp", "mezo"])
    measures = Measures(lambda graph: 1.0)
    mesp, mezo = plans.estimates(plans.fitted(plans.estimated(quiet), measures), measures)
    assert mesp.least.peak_bytes < mesp.estimate.peak_bytes <= 1_200_000 < mesp.fastest.peak_bytes
    assert mesp.fastest.work_flops < mesp.estimate.work_flops <= mesp.least.work_flops
    assert mezo.least.peak_bytes <= mezo.estimate.peak_bytes <= mezo.fastest.peak_bytes


def test_the_dial_tells_what_each_budget_buys(made: Made) -> None:
    plans = made(None)
    measures = Measures(lambda graph: 1.0)
    assert plans.dial([], measures) == ()
    (planner,) = plans.planners(measures([])).values()
    least, most = planner.smallest(), planner.plan(None)
    none, *points = plans.dial([least.peak - 1, least.peak, (least.peak + most.peak) // 2, 50_000_000], measures)
    assert (none.estimate, none.seconds) == (None, None)
    assert points[0].seconds <= least.seconds
    assert points[2].seconds == most.seconds
    assert most.seconds < points[1].seconds < points[0].seconds
    assert all(point.estimate.peak_bytes <= point.budget_bytes for point in points)


def test_a_dial_prints_as_a_table(tmp_path: Path) -> None:
    tiny_model("llama", tmp_path, num_hidden_layers=2)
    personalizer = Personalizer(tmp_path, "mesp", lora=Lora(rank=2), training=Training(sequence_lengths=(16,)))
    head, none, some = str(personalizer.dial([0.1, 60])).splitlines()
    assert "does not fit" in none
    assert "kept_products=2" in some
    assert head.split()[:4] == ["method", "length", "budget", "MB"]
    assert "least MB" in str(personalizer.estimate())
