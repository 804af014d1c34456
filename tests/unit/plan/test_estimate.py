# SPDX-License-Identifier: Apache-2.0
"""The estimate of a plan adds up what its calls take, what the engine keeps, and what goes to the scratch file."""

from __future__ import annotations

import pytest

from bespoke.plan.compile import (
    WEIGHT_HEADER_BYTES,
    LiveSections,
    compile_plan,
    copied_weights,
    step_seconds,
    with_liveness,
)
from bespoke.plan.costs import Costs, Speed, Workspace
from bespoke.plan.instructions import Free, Instruction, Load
from tests.unit.plan.drafts import Draft


def test_what_calls_take_and_what_the_engine_keeps_add_up_though_they_are_of_different_calls() -> None:
    draft = Draft()
    for name in "ab":
        draft.emit(name, draft.make([[draft.batch()]]))
    plan = compile_plan(
        draft.plan,
        with_liveness(draft.plan),
        Costs(7),
        method="handmade",
        sequence_length=2,
        batch_size=2,
        choices={},
        workspaces={draft.plan.graphs[0].key: Workspace(5_000, 100), draft.plan.graphs[1].key: Workspace(300, 4_000)},
    )
    e = plan.estimate
    assert (e.workspace_bytes, e.engine_bytes) == (5_000, 4_000)
    assert e.peak_bytes == e.arena_bytes + 9_000 + 7
    assert [graph.engine_bytes for graph in plan.graphs] == [100, 4_000]


def test_a_step_takes_what_its_calls_take_and_what_goes_to_the_scratch_file() -> None:
    draft = Draft()
    x = draft.value((4, 2))
    draft.call([[draft.batch()]], ([x], "make"), flops=300)
    draft.plan.graphs[-1].traffic_bytes = 50
    draft.emit("loss", x)
    draft.section = "evaluate_step"
    draft.emit("loss_sum", draft.make([[draft.batch()]]))
    speed = Speed(flops_per_second=100, bytes_per_second=10, call_seconds=2, scratch_bytes_per_second=4)
    assert step_seconds(draft.plan, speed) == 3 + 5 + 2  # evaluation is no part of it
    assert step_seconds(draft.plan, speed, [x]) == 3 + 5 + 2 + 32 / 4


def test_the_estimate_adds_up() -> None:
    draft = Draft()
    adapter = draft.adapter("block_00.q_proj.lora_A", (4, 16))
    x = draft.value((4, 16))
    draft.call([[draft.batch()], [adapter]], ([x], "make"), workspace=1000, flops=30)
    y = draft.value((4, 16))
    draft.call([[x]], ([y], "make"), workspace=300, flops=12)
    draft.store(adapter, [y])
    draft.section = "evaluate_step"
    draft.emit("loss", draft.make([[draft.batch()]], (2000,)))
    estimate = draft.compile(constant_bytes=7).estimate
    assert estimate.workspace_bytes == 1000  # the largest, not the sum
    assert estimate.work_flops == 42  # of training alone
    assert estimate.arena_bytes == 8000  # of the section that needs most
    assert estimate.peak_bytes == 8000 + 1000 + 7
    assert (estimate.state_bytes, estimate.step_bytes, estimate.session_bytes) == (256, 0, 0)


def loads(*groups: str) -> list[Instruction]:
    """Each group is loaded, used and freed; "a b" means that a is still there when b comes."""
    code: list[Instruction] = []
    for names in groups:
        code += [Load(op="load", group=name) for name in names.split()]
        code += [Free(op="free", value=None, group=name) for name in names.split()]
    return code


@pytest.mark.parametrize(
    ("groups", "most"),
    [
        (["a", "b", "c"], 5_000),  # b while c comes, or c while the next step's a does
        (["a"], 200),  # the next step's while this one is there
        (["a b", "c"], 5_100),  # a and b while c comes
        (["b", "a", "b"], 4_000),  # the same group comes again in the next step
    ],
)
def test_weights_that_an_engine_copies_count_with_the_group_that_comes_next(groups: list[str], most: int) -> None:
    draft = Draft()
    sizes = {"a": 100, "b": 2_000, "c": 3_000}
    for group, size in sizes.items():
        draft.weight(group, (size // 4,))
    live = LiveSections({"train_step": loads(*groups)}, {})
    held = max(len(one.split()) for one in groups) + 1
    assert copied_weights(live, draft.plan.values) == most + held * WEIGHT_HEADER_BYTES


def test_only_an_engine_that_copies_weights_has_them_in_its_estimate() -> None:
    draft = Draft()
    x = draft.batch()
    draft.call([[draft.weight("block_00", (4, 2))], [x]], ([draft.value((4, 2))], "make"))
    live = with_liveness(draft.plan)
    peaks = [
        compile_plan(
            draft.plan,
            live,
            Costs(1_000, copies_weights=copies),
            method="m",
            sequence_length=2,
            batch_size=2,
            choices={},
        ).estimate.constant_bytes
        for copies in (False, True)
    ]
    assert peaks == [1_000, 1_000 + 2 * (4 * 2 * 4 + WEIGHT_HEADER_BYTES)]
