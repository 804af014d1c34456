# SPDX-License-Identifier: Apache-2.0
"""The fastest plan that fits, or a refusal that says how much would be enough."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from bespoke import plugins
from bespoke.compiler import planner
from bespoke.compiler.plan_request import PlanRequest, training_request
from bespoke.compiler.planner import Planned, Planner
from bespoke.compiler.request import Method
from bespoke.config import Lora, Settings, Training
from bespoke.errors import ConfigError, PlanDoesNotFit, PlanError
from bespoke.graph.trace import Tracer
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import Costs, Workspace
from bespoke.plan.verify import verify
from tests.support.models import tiny_config

pytestmark = pytest.mark.xdist_group("planner")  # one process plans every combination


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    """A model of two blocks, so every combination of kept values is planned."""
    folder = tmp_path_factory.mktemp("two_blocks")
    tiny_config("llama", num_hidden_layers=2).save_pretrained(folder)
    return ModelSpec(read_config(folder), Lora(rank=2))


@pytest.fixture(scope="module")
def tracer() -> Tracer:
    return Tracer()


def request_for(method: str, *, length: int = 96, training: Training | None = None) -> PlanRequest:
    plugin = plugins.get("optimizer", method)
    resolved = Method(method, plugin, plugin.Options(), training or Training(batch_size=2))
    return training_request(resolved, length, 2 * length, Costs(1000))


@pytest.fixture(scope="module")
def everything(llama: ModelSpec, tracer: Tracer) -> list[Planned]:
    """Every combination of mesp's choices, in memory and, where nothing is kept, with every checkpoint in the scratch file."""
    plans = Planner(request_for("mesp"), llama, tracer)
    candidates = plans._record(llama, {})[0].candidates
    assert {"query_tile", "row_tile", "mlp_slice", "head_chunk", "kept_attention", "kept_products"} == set(candidates)
    found = []
    for combination in itertools.product(*candidates.values()):
        choices = dict(zip(candidates, combination, strict=True))
        builder, live = plans._record(llama, choices)
        found.append(plans._compiled(builder, live, ()))
        if not kept(choices):
            found.append(plans._compiled(builder, live, None))
    return found


def kept(choices: dict[str, Any]) -> int:
    return int(choices["kept_attention"] + choices["kept_products"])


@pytest.mark.slow
def test_without_a_budget_the_fastest_plan_is_taken(
    llama: ModelSpec, tracer: Tracer, everything: list[Planned]
) -> None:
    found = Planner(request_for("mesp"), llama, tracer).plan(None)
    assert found.seconds == min(planned.seconds for planned in everything)
    assert not found.spilled
    assert kept(found.plan.choices) == 2 * len(llama.blocks)
    verify(found.plan, "mesp", tracer.graphs)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.5, 0.7, 0.9])
def test_within_a_budget_the_fastest_that_fits_is_taken(
    share: float, llama: ModelSpec, tracer: Tracer, everything: list[Planned]
) -> None:
    peaks = sorted(planned.peak for planned in everything)
    budget = int(peaks[0] + share * (peaks[-1] - peaks[0]))
    found = Planner(request_for("mesp"), llama, tracer).plan(budget)
    assert found.peak <= budget
    fitting = [planned for planned in everything if planned.peak <= budget]
    in_memory = [planned for planned in fitting if not planned.spilled]
    assert bool(found.spilled) == (not in_memory)
    assert found.seconds <= 1.02 * min(planned.seconds for planned in in_memory or fitting)  # it does not try every one
    verify(found.plan, "mesp", tracer.graphs)


@pytest.mark.slow
def test_more_memory_is_never_slower(llama: ModelSpec, tracer: Tracer, everything: list[Planned]) -> None:
    plans = Planner(request_for("mesp"), llama, tracer)
    least, most = plans.smallest().peak, plans.plan(None).peak
    dial = [plans.plan(least + (most - least) * step // 8) for step in range(9)]
    seconds = [planned.seconds for planned in dial]
    assert seconds == sorted(seconds, reverse=True)
    assert len(set(seconds)) > 4
    assert kept(dial[0].plan.choices) == 0
    assert dial[0].spilled
    assert kept(dial[-1].plan.choices) == 2 * len(llama.blocks)


def test_what_is_kept_is_never_written_to_the_scratch_file(llama: ModelSpec, tracer: Tracer) -> None:
    plans = Planner(request_for("mesp"), llama, tracer)
    builder, live = plans._record(llama, {"kept_attention": 2, "kept_products": 1})
    planned = plans._compiled(builder, live, None)
    places = [(value.kept, planned.plan.values[number].place.kind) for number, value in enumerate(builder.draft.values)]
    assert {kind for kept, kind in places if kept} == {"arena"}
    assert sum(kept for kept, _ in places) == 2 * 5 + 2 * len(range(0, 172, int(planned.plan.choices["mlp_slice"])))
    assert sum(kind == "scratch" for _, kind in places) == len(llama.blocks)  # each block's input, and nothing else


@pytest.mark.slow
def test_a_budget_too_small_is_refused_with_one_that_is_enough(
    llama: ModelSpec, tracer: Tracer, everything: list[Planned]
) -> None:
    smallest = min(planned.peak for planned in everything)
    fastest = min(everything, key=lambda planned: planned.seconds)
    with pytest.raises(PlanDoesNotFit) as caught:
        Planner(request_for("mesp"), llama, tracer).plan(smallest - 1)
    assert f"{smallest / 1e6:.1f} MB" in caught.value.expected
    assert f"{fastest.peak / 1e6:.1f} MB at {fastest.plan.estimate.work_flops / 1e9:.2f} GFLOP" in caught.value.expected
    suggested = re.search(r"memory_mb=([0-9.]+)", caught.value.next_step)
    assert suggested is not None
    enough = int(float(suggested[1]) * 1e6)
    assert smallest <= enough < smallest + 100_001
    assert Planner(request_for("mesp"), llama, tracer).plan(enough).peak <= enough


@pytest.mark.slow
def test_scratch_is_used_where_memory_is_short(everything: list[Planned]) -> None:
    held, spilled = everything[0], everything[1]
    assert not held.spilled
    assert spilled.spilled
    assert spilled.peak < held.peak
    assert spilled.plan.estimate.scratch_bytes > 0
    assert spilled.seconds > held.seconds


def test_no_more_checkpoints_are_written_than_must_be(
    llama: ModelSpec, tracer: Tracer, everything: list[Planned]
) -> None:
    held, spilled = everything[0], everything[1]
    some = Planner(request_for("mesp"), llama, tracer)._whole({}, (held.peak + spilled.peak) // 2)
    assert 0 < len(some.spilled) < len(spilled.spilled)
    verify(some.plan, "mesp", tracer.graphs)


def test_measured_workspaces_change_the_estimate_and_nothing_else(everything: list[Planned]) -> None:
    one = everything[0]
    measured = planner.remeasured(
        one, Costs(1000), {graph.key: Workspace(5_000_000, 70_000) for graph in one.plan.graphs}
    )
    assert (measured.estimate.workspace_bytes, measured.estimate.engine_bytes) == (5_000_000, 70_000)
    assert measured.estimate.peak_bytes == one.plan.estimate.arena_bytes + 5_070_000 + 1000
    assert measured.sections == one.plan.sections
    assert measured.values == one.plan.values


@pytest.mark.parametrize("training", [{"accumulation": 2}, {"clip_norm": 1.0}])
def test_a_method_with_a_journal_takes_no_accumulation(
    training: dict[str, Any], llama: ModelSpec, tracer: Tracer
) -> None:
    request = request_for("mezo", length=5, training=Training(batch_size=2, **training))
    with pytest.raises(ConfigError) as caught:
        Planner(request, llama, tracer).plan(None)
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
        for name in "abcdefghijklm":
            b.choose(name, [1, 2])
        super().train_step(b, model, options)


def own(plugin: Any, **training: Any) -> PlanRequest:
    return training_request(Method("own", plugin, Settings(), Training(batch_size=2, **training)), 5, 10, Costs(0))


def test_a_method_that_ignores_accumulation_is_refused(llama: ModelSpec, tracer: Tracer) -> None:
    with pytest.raises(PlanError, match="a step without section apply_step"):
        Planner(own(StoresAtOnce(), accumulation=2), llama, tracer).plan(None)


def test_too_many_combinations_are_refused(llama: ModelSpec, tracer: Tracer) -> None:
    with pytest.raises(PlanError, match=f"at most {planner.MAX_COMBINATIONS}"):
        Planner(own(ManyChoices()), llama, tracer).plan(None)
