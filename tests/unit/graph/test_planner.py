# SPDX-License-Identifier: Apache-2.0
"""The fastest plan that fits, or a refusal that says how much would be enough."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from bespoke import plugins
from bespoke.config import Training
from bespoke.errors import ConfigError, PlanDoesNotFit, PlanError
from bespoke.graph import planner
from bespoke.graph.planner import Planned, Request, plan_method
from bespoke.graph.trace import Tracer
from bespoke.model.spec import ModelSpec
from bespoke.plan.compile import Costs
from bespoke.plan.verify import verify


@pytest.fixture(scope="module")
def tracer() -> Tracer:
    return Tracer()


def request_for(method: str, budget: int | None = None, *, length: int = 96, training: Training | None = None) -> Request:
    plugin = plugins.get("optimizer", method)
    training = training or Training(batch_size=2)
    return Request(method, plugin, plugin.Options(), training, length, 2 * length, budget, Costs(1.0, 1000))


@pytest.fixture(scope="module")
def everything(llama: ModelSpec, tracer: Tracer) -> list[Planned]:
    """Every combination of mesp's choices, with and without scratch."""
    request = request_for("mesp")
    candidates = planner.record_sections(request, llama, tracer, {}).candidates
    assert len(candidates) == 3
    return [
        planned
        for combination in itertools.product(*candidates.values())
        for planned in planner._with_and_without_scratch(
            request, planner.record_sections(request, llama, tracer, dict(zip(candidates, combination, strict=True)))
        )
    ]


def peak(planned: Planned) -> int:
    return planned.plan.estimate.peak_bytes


def test_without_a_budget_the_fastest_plan_is_taken(llama: ModelSpec, tracer: Tracer, everything: list[Planned]) -> None:
    found = plan_method(request_for("mesp"), llama, tracer)
    assert planner._price(found) == min(map(planner._price, everything))
    assert not found.spilled
    verify(found.plan, "mesp", tracer.graphs)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9])
def test_within_a_budget_the_fastest_that_fits_is_taken(
    share: float, llama: ModelSpec, tracer: Tracer, everything: list[Planned]
) -> None:
    peaks = sorted(map(peak, everything))
    budget = int(peaks[0] + share * (peaks[-1] - peaks[0]))
    found = plan_method(request_for("mesp", budget), llama, tracer)
    assert peak(found) <= budget
    assert planner._price(found) == min(planner._price(planned) for planned in everything if peak(planned) <= budget)
    verify(found.plan, "mesp", tracer.graphs)


def test_a_budget_too_small_is_refused_with_one_that_is_enough(
    llama: ModelSpec, tracer: Tracer, everything: list[Planned]
) -> None:
    smallest = min(map(peak, everything))
    with pytest.raises(PlanDoesNotFit) as caught:
        plan_method(request_for("mesp", smallest - 1), llama, tracer)
    assert f"{smallest / 1e6:.1f} MB" in caught.value.expected
    suggested = re.search(r"memory_mb=([0-9.]+)", caught.value.next_step)
    assert suggested is not None
    enough = int(float(suggested[1]) * 1e6)
    assert smallest <= enough < smallest + 100_001
    assert peak(plan_method(request_for("mesp", enough), llama, tracer)) <= enough


def test_scratch_is_used_where_memory_is_short(everything: list[Planned]) -> None:
    kept, spilled = everything[0], everything[1]
    assert not kept.spilled
    assert spilled.spilled
    assert peak(spilled) < peak(kept)
    assert spilled.plan.estimate.scratch_bytes > 0
    assert planner._price(spilled) > planner._price(kept)


def test_measured_workspaces_change_the_estimate_and_nothing_else(everything: list[Planned]) -> None:
    one = everything[0]
    measured = planner.remeasured(one, Costs(1.0, 1000), {graph.key: 5_000_000 for graph in one.plan.graphs})
    assert measured.estimate.workspace_bytes == 5_000_000
    assert measured.estimate.peak_bytes == one.plan.estimate.arena_bytes + 5_000_000 + 1000
    assert measured.sections == one.plan.sections
    assert measured.values == one.plan.values


@pytest.mark.parametrize("training", [{"accumulation": 2}, {"clip_norm": 1.0}])
def test_a_method_with_a_journal_takes_no_accumulation(training: dict[str, Any], llama: ModelSpec, tracer: Tracer) -> None:
    request = request_for("mezo", length=5, training=Training(batch_size=2, **training))
    with pytest.raises(ConfigError) as caught:
        plan_method(request, llama, tracer)
    assert "mezo" in caught.value.subject
    assert f"{next(iter(training))}={next(iter(training.values()))}" in caught.value.got
    assert "mezo" in caught.value.next_step


class StoresAtOnce:
    """A method that ignores accumulation."""

    def train_step(self, b: Any, model: ModelSpec, options: Any) -> None:
        for group in model.blocks:
            for piece in b.adapter(group).values():
                b.store(piece, b.call(same, piece))


def same(x: Any) -> Any:
    return x.clone()


class ManyChoices(StoresAtOnce):
    def train_step(self, b: Any, model: ModelSpec, options: Any) -> None:
        for name in "abcdefghi":
            b.choose(name, [1, 2])
        super().train_step(b, model, options)


def own(plugin: Any, **training: Any) -> Request:
    return Request("own", plugin, None, Training(batch_size=2, **training), 5, 10, None, Costs(1.0, 0))


def test_a_method_that_ignores_accumulation_is_told(llama: ModelSpec, tracer: Tracer) -> None:
    with pytest.raises(PlanError, match="a step without section apply_step"):
        plan_method(own(StoresAtOnce(), accumulation=2), llama, tracer)


def test_too_many_combinations_are_refused(llama: ModelSpec, tracer: Tracer) -> None:
    with pytest.raises(PlanError, match=f"at most {planner.MAX_COMBINATIONS}"):
        plan_method(own(ManyChoices()), llama, tracer)
