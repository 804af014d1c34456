# SPDX-License-Identifier: Apache-2.0
"""All plans of a bundle: costs of its first target, the budget asked again with what was measured, estimates and dial."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bespoke import Budget, Lora, Personalizer, Training
from bespoke.compiler.planner import Planned
from bespoke.compiler.plans import ANSWERS, Key, Plans, Subject, context_length
from bespoke.contracts import Target
from bespoke.errors import ConfigError, PlanDoesNotFit, PlanError
from bespoke.graph import trace
from bespoke.graph.trace import Graph
from bespoke.model.architecture import ModelConfig
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import Costs, Workspace
from bespoke.plan.same_state import check_same_state
from tests.support.models import tiny_config, tiny_model

LENGTH = 70
MESP = ("mesp", LENGTH)
PRODUCTS = ("attention_output", "mlp_slice")
COSTS = Costs(constant_bytes=1000, results_in_place=True)
Made = Callable[..., Plans]

pytestmark = pytest.mark.xdist_group("plans")  # they share what was traced


class Costly(Target):
    """A target without artifacts whose runtime has the costs of a test."""

    name = "costly"

    def __init__(self, costs: Costs) -> None:
        self.costs = costs


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Plans of a tiny model for a target of COSTS, which compiles nothing."""

    def plans(
        memory_mb: float | tuple[float, ...] | None, costs: Costs = COSTS, methods: Any = "mesp", context: int = LENGTH
    ) -> Plans:
        tiny_config("llama", num_hidden_layers=2).save_pretrained(tmp_path)
        training = Training(sequence_lengths=(LENGTH,), batch_size=2)
        personalizer = Personalizer(
            tmp_path, methods, context=context, lora=Lora(rank=2), training=training, budget=Budget(memory_mb=memory_mb)
        )
        target = replace(personalizer.request.targets[0], name="costly", plugin=Costly(costs))
        request = replace(personalizer.request, targets=(target,))
        return Plans(request, ModelSpec(read_config(tmp_path), request.lora))

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


def only(planned: Mapping[Key, Planned], subject: Subject = MESP) -> Planned:
    (found,) = (one for key, one in planned.items() if (key.method, key.length) == subject)
    return found


def test_estimates_are_made_for_the_costs_of_the_first_target(made: Made) -> None:
    estimated = only(made(None).estimated(quiet))
    e = estimated.plan.estimate
    assert e.constant_bytes == 1000
    in_place = {graph.key: graph.workspace_bytes for graph in estimated.plan.graphs}
    whole = only(made(None, Costs(constant_bytes=1000)).estimated(quiet))
    larger = [
        graph for graph in whole.plan.graphs if graph.key in in_place and graph.workspace_bytes > in_place[graph.key]
    ]
    assert len(larger) > 10


@pytest.mark.slow
def test_measured_workspaces_that_no_longer_fit_give_another_plan(made: Made) -> None:
    fastest = only(made(None).estimated(quiet))
    plans = made(fastest.peak / 1e6)
    estimated = plans.estimated(quiet)
    measures = Measures(lambda graph: 2.0)
    fitted, before = only(plans.fitted(estimated, measures)), only(estimated)
    remeasured = {graph.key: (graph.workspace_bytes, graph.engine_bytes) for graph in fitted.plan.graphs}
    assert remeasured == {key: measures.met[key] for key in remeasured}
    assert fitted.peak <= fastest.peak
    assert fitted.plan.choices != before.plan.choices
    assert fitted.seconds > before.seconds


def test_measured_workspaces_that_leave_room_are_used(made: Made) -> None:
    plans = made(1.0)
    estimated = plans.estimated(quiet)
    assert only(plans.fitted(estimated, Measures(lambda graph: 0.1))).seconds < only(estimated).seconds


def test_workspaces_that_fit_nowhere_are_refused_with_the_measured_smallest(made: Made) -> None:
    plans = made(1.0)
    with pytest.raises(PlanDoesNotFit, match="at least") as caught:
        plans.fitted(plans.estimated(quiet), Measures(lambda graph: 50.0))
    smallest = plans.planners(Measures(lambda graph: 50.0)(list(plans.tracer.graphs.values())))[MESP].smallest()
    assert f"{smallest.peak / 1e6:.1f} MB" in caught.value.expected


def test_without_a_budget_nothing_is_planned_again(made: Made) -> None:
    plans = made(None)
    estimated = plans.estimated(quiet)
    measures = Measures(lambda graph: 50.0)
    assert plans.fitted(estimated, measures) is estimated
    assert measures.calls == 1


def test_each_budget_has_plans_that_fit_it(made: Made) -> None:
    """In any order; they keep the same state and record the same, whatever they keep within a step."""
    whole = made(None)
    ends = whole.planners()[MESP]
    least, most = ends.smallest().peak, ends.plan(None).peak
    budgets = [most + 1, (least + most) // 2, least]
    plans = made(tuple(budget / 1e6 for budget in reversed(budgets)))
    assert list(plans.budgets) == budgets
    fitted = plans.fitted(plans.estimated(quiet), Measures(lambda graph: 1.0))
    assert [key.budget for key in fitted if key.method == "mesp"] == budgets
    mesp = [fitted[Key(*MESP, budget)] for budget in budgets]
    assert all(one.peak <= budget for one, budget in zip(mesp, budgets, strict=True))
    assert mesp[0].peak > mesp[1].peak > mesp[2].peak
    assert mesp[0].seconds < mesp[1].seconds <= mesp[2].seconds
    answers = [fitted[Key(*ANSWERS, budget)].peak for budget in budgets]
    assert all(peak <= budget for peak, budget in zip(answers, budgets, strict=True))
    check_same_state("mesp", [one.plan for one in mesp])


def test_plans_that_keep_other_state_are_no_plans_of_one_method(made: Made) -> None:
    plan = only(made(None).estimated(quiet)).plan
    others = {value.place.name for value in plan.values if value.lifetime == "state"}  # type: ignore[union-attr]
    longer = plan.model_copy(deep=True)
    value = next(value for value in longer.values if value.lifetime == "state")
    value.shape.append(2)
    with pytest.raises(PlanError, match="as in its other plans") as caught:
        check_same_state("mesp", [plan, longer])
    assert any(name in caught.value.subject for name in others)


def test_the_smallest_of_several_budgets_has_to_be_enough(made: Made) -> None:
    least = made(None).planners()[MESP].smallest().peak
    plans = made((2 * least / 1e6, (least - 1000) / 1e6))
    with pytest.raises(PlanDoesNotFit, match=f"a budget of {(least - 1000) / 1e6:.1f} MB"):
        plans.fitted(plans.estimated(quiet), Measures(lambda graph: 1.0))


def test_an_estimate_tells_the_ends_of_what_can_be_had(made: Made) -> None:
    plans = made(1.2, methods=["mesp", "mezo"])
    measures = Measures(lambda graph: 1.0)
    mesp, mezo, _ = plans.estimates(plans.fitted(plans.estimated(quiet), measures), measures)
    assert mesp.least.peak_bytes < mesp.estimate.peak_bytes <= 1_200_000 < mesp.fastest.peak_bytes
    assert mesp.fastest.work_flops < mesp.estimate.work_flops <= mesp.least.work_flops
    assert mezo.least.peak_bytes <= mezo.estimate.peak_bytes <= mezo.fastest.peak_bytes


@pytest.mark.slow
def test_the_dial_tells_what_each_budget_buys(made: Made) -> None:
    plans = made(None)
    measures = Measures(lambda graph: 1.0)
    assert plans.dial([], measures) == ()
    planner = plans.planners(measures([]))[MESP]
    least, most = planner.smallest(), planner.plan(None)
    points = plans.dial([least.peak - 1, least.peak, (least.peak + most.peak) // 2, 50_000_000], measures)
    none, *points = [point for point in points if point.method == "mesp"]
    assert (none.estimate, none.seconds) == (None, None)
    assert points[0].seconds <= least.seconds
    assert points[2].seconds == most.seconds
    assert most.seconds < points[1].seconds < points[0].seconds
    assert all(point.estimate.peak_bytes <= point.budget_bytes for point in points)


@pytest.mark.slow
def test_a_dial_prints_as_a_table(tmp_path: Path) -> None:
    tiny_model("llama", tmp_path, num_hidden_layers=2)
    personalizer = Personalizer(tmp_path, "mesp", lora=Lora(rank=2), training=Training(sequence_lengths=(16,)))
    head, none, some, *answers = str(personalizer.dial([0.1, 60])).splitlines()
    assert "does not fit" in none
    assert "kept_products=2" in some
    assert head.split()[:4] == ["method", "length", "budget", "MB"]
    assert [line.split()[0] for line in answers] == ["generation"] * 2
    assert "least MB" in str(personalizer.estimate())


@pytest.mark.slow
def test_what_an_estimate_and_a_build_have_traced_the_next_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what they share is changed by none of them: the bytes are the same."""
    model = tiny_model("llama", tmp_path / "model", num_hidden_layers=2)
    personalizer = Personalizer(
        model, "mesp", "torch", lora=Lora(rank=2), training=Training(sequence_lengths=(16,)), licence="MIT"
    )
    personalizer.estimate()
    folders = [personalizer.build(tmp_path / "first")]
    monkeypatch.setattr(trace, "make_fx", None)
    personalizer.estimate()
    folders.append(personalizer.build(tmp_path / "second"))
    first, second = (
        {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()} for folder in folders
    )
    assert first == second


def test_the_plan_for_answers_takes_the_longest_chunk_that_fits(made: Made) -> None:
    """Its KV cache counts, and a refusal names the smallest peak of the shortest chunk."""
    context = 200
    longest = only(made(None, context=context).estimated(quiet), ANSWERS)
    assert (longest.plan.method, longest.plan.sequence_length, longest.plan.batch_size) == ("generation", 128, 1)
    assert list(longest.plan.sections) == ["prefill", "decode"]
    found = {}
    planner = made(None, context=context).planners()[ANSWERS]
    for budget in range(longest.peak, planner.smallest().peak - 1, -10_000):
        planned = planner.plan(budget)
        e = planned.plan.estimate
        assert e.peak_bytes <= budget
        assert e.peak_bytes == e.arena_bytes + e.workspace_bytes + e.engine_bytes + e.constant_bytes + e.session_bytes
        assert (e.scratch_bytes, e.step_bytes) == (0, 0)
        found[planned.plan.sequence_length] = e
    assert list(found) == [128, 64, 32, 16]
    least = planner.smallest()
    with pytest.raises(PlanDoesNotFit, match="The plan for answers") as caught:
        planner.plan(least.peak - 1)
    assert f"{least.peak / 1e6:.1f} MB" in caught.value.expected
    assert "context" in caught.value.next_step
    assert least.plan.sequence_length == 16


@pytest.mark.parametrize(
    ("rows", "batch", "chunk", "shared"),
    [
        (40, 1, 40, {"attention_inputs", "attention_output", "mlp_slice"}),
        (20, 2, 40, {"attention_output", "mlp_slice"}),  # positions of two sequences are not those of one
        (70, 2, 128, set()),
        (5, 3, 128, set()),  # more rows than a chunk may have, and too few
    ],
)
def test_where_weights_are_baked_a_prompt_goes_through_the_programs_of_training(
    rows: int, batch: int, chunk: int, shared: set[str], tmp_path: Path
) -> None:
    tiny_config("llama", num_hidden_layers=1, max_position_embeddings=256).save_pretrained(tmp_path)
    training = Training(sequence_lengths=(rows,), batch_size=batch)
    target = {"executorch": {"delegate": "qnn"}}
    request = Personalizer(tmp_path, "mezo", target, context=200, lora=Lora(rank=2), training=training).request
    found = Plans(request, ModelSpec(read_config(tmp_path), request.lora)).estimated(quiet)
    trained, answers = found[Key("mezo", rows, None)].plan, only(found, ANSWERS).plan
    assert answers.sequence_length == chunk
    keys = {graph.key for graph in trained.graphs}
    assert {graph.name for graph in answers.graphs if graph.key in keys} & {"attention_inputs", *PRODUCTS} == shared


def test_the_kv_cache_of_a_longer_context_counts_against_the_budget(made: Made) -> None:
    some, more = (made(None, context=context).planners()[ANSWERS].smallest().plan.estimate for context in (80, 240))
    assert more.session_bytes == 3 * some.session_bytes
    assert more.peak_bytes - some.peak_bytes >= more.session_bytes - some.session_bytes


@pytest.mark.parametrize(("draft_tokens", "context", "most"), [(8, None, 7), (-1, None, 7), (4, 4, 3)])
def test_draft_tokens_fit_into_a_run_and_the_context(draft_tokens: int, context: int | None, most: int) -> None:
    words = f"draft_tokens: got {draft_tokens}; expected 0 to {most}. Change draft_tokens."
    with pytest.raises(ConfigError, match=re.escape(words)):
        Personalizer("m", [], draft_tokens=draft_tokens, context=context, training=Training(sequence_lengths=(4,)))


def test_a_context_shorter_than_a_chunk_is_one_chunk(tmp_path: Path) -> None:
    tiny_config("llama", num_hidden_layers=1).save_pretrained(tmp_path)
    request = Personalizer(tmp_path, [], context=10, training=Training(sequence_lengths=(8,))).request
    plans = Plans(request, ModelSpec(read_config(tmp_path), request.lora))
    assert [(key, planned.plan.sequence_length) for key, planned in plans.estimated(quiet).items()] == [
        (Key(*ANSWERS, None), 10)
    ]


def test_the_context_is_what_was_asked_for_or_1024_or_what_the_model_knows(tmp_path: Path) -> None:
    folder = tmp_path / "long"
    tiny_config("llama", max_position_embeddings=4096).save_pretrained(folder)
    config = read_config(folder)
    short = config.model_copy(update={"max_positions": 300})

    def context(of: ModelConfig, asked: int | None = None, longest: int = 256) -> int:
        return context_length(
            Personalizer(folder, [], context=asked, training=Training(sequence_lengths=(longest,))).request, of
        )

    assert [context(config), context(short), context(config, 700)] == [1024, 300, 700]
    assert context(config, longest=2000) == 2000  # a row of examples is that long
    with pytest.raises(ConfigError, match=r"context.*at least 256"):
        context(config, 255)
