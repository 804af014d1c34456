# SPDX-License-Identifier: Apache-2.0
"""Liveness, loads, needless zeros, arena and scratch: on random programs the plan computes what the recorded data flow says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bespoke.plan.arena import ALIGNMENT, place
from bespoke.plan.compile import (
    compile_plan,
    with_liveness,
)
from bespoke.plan.costs import Costs, Workspace
from bespoke.plan.draft import DraftValue
from bespoke.plan.liveness import Interval
from tests.unit.plan.drafts import ByteMachine, Draft, content_of, document_of, mixed

BLOCKS = ("block_00", "block_01", "rope", "head")


class Program:
    """A random data flow, and what it computes when every value has memory of its own."""

    def __init__(self, data: st.DataObject) -> None:
        self.data, self.draft = data, Draft()
        self.weights = {group: self.draft.weight(group, (3, 2)) for group in BLOCKS}
        self.known: dict[int, np.ndarray] = {self.draft.batch(): content_of("tokens", (2, 2), np.int64)}
        self.known |= {value: content_of(f"{group}.w", (3, 2), np.float32) for group, value in self.weights.items()}
        self.expected: dict[str, np.ndarray] = {}
        for _ in range(data.draw(st.integers(1, 14))):
            data.draw(st.sampled_from([self.make, self.make, self.fill, self.add, self.emit]))()
        self.emit()

    def operands(self, but: int | None = None) -> list[list[int]]:
        chosen = self.data.draw(st.lists(st.sampled_from([v for v in self.known if v != but]), min_size=1, max_size=3))
        return [self.cut(value) if self.data.draw(st.booleans()) else [value] for value in chosen]

    def cut(self, value: int) -> list[int]:
        rows = self.known[value].shape[0]
        start = self.data.draw(st.integers(0, rows - 1))
        return [value, start, self.data.draw(st.integers(1, rows - start))]

    def content(self, operand: list[int]) -> np.ndarray:
        whole = self.known[operand[0]]
        return whole if len(operand) == 1 else whole[operand[1] : operand[1] + operand[2]]

    def make(self) -> None:
        operands = self.operands()
        number = mixed([self.content(operand) for operand in operands])
        targets = [
            self.draft.value((self.data.draw(st.integers(1, 40)), 2)) for _ in range(self.data.draw(st.integers(1, 3)))
        ]
        self.draft.call(operands, *(([target], "make") for target in targets))
        for place_, target in enumerate(targets):
            self.known[target] = np.full(self.draft.plan.values[target].shape, (number + place_) % 97, np.float32)

    def fill(self) -> None:
        """A value of zeros whose rows are filled by `into`: all of them, some, in order or not."""
        rows = self.data.draw(st.integers(1, 6))
        target = self.draft.zeros((rows, 2))
        self.known[target] = np.zeros((rows, 2), np.float32)
        for _ in range(self.data.draw(st.integers(0, 4))):
            self.write(target, self.cut(target), "into")

    def add(self) -> None:
        values = [v for v in self.known if self.draft.plan.values[v].lifetime == "section"]
        if values:
            target = self.data.draw(st.sampled_from(values))
            self.write(target, self.cut(target) if self.data.draw(st.booleans()) else [target], "add_to")

    def write(self, target: int, to: list[int], how: str) -> None:
        operands = self.operands(but=target)
        number = mixed([self.content(operand) for operand in operands])
        self.draft.call(operands, (to, how))
        before = self.content(to) if how == "add_to" else 0
        self.content(to)[...] = before + number % 97

    def emit(self) -> None:
        emitted = [v for v in self.known if self.draft.plan.values[v].dtype == "float32"]
        value = self.data.draw(st.sampled_from(emitted))
        name = f"metric_{len(self.expected)}"
        self.draft.emit(name, value)
        self.expected[name] = self.known[value].copy()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_programs_compute_the_same_in_one_arena(data: st.DataObject) -> None:
    program = Program(data)
    draft = program.draft
    waiting = sorted(with_liveness(draft.plan).waiting["train_step"])
    spilled = data.draw(st.sampled_from([(), waiting]))
    plan = draft.read(draft.compile(spilled=spilled))  # verified
    document = document_of(plan)
    emitted = ByteMachine(document).run(document["sections"]["train_step"])
    for name, expected in program.expected.items():
        np.testing.assert_array_equal(emitted[name], expected)
    placed = {v for v, value in enumerate(document["values"]) if value["place"]["kind"] == "scratch"}
    assert placed == set(spilled)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_living_values_never_share_bytes(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 25))
    values, live = [], {}
    for number in range(count):
        values.append(DraftValue((data.draw(st.integers(0, 500)),), "uint8", "temporary", "section", "v"))
        birth = data.draw(st.integers(0, 30)) * 2
        live[number] = Interval(birth, birth + 2 * data.draw(st.integers(0, 15)) + 1)
    waiting = {number for number in live if data.draw(st.booleans())}
    spilled = {number for number in waiting if data.draw(st.booleans())}
    places, arena, scratch = place(live, values, waiting, spilled)
    spans = {}
    for number, found in places.items():
        assert found.offset % ALIGNMENT == 0
        assert found.kind == ("scratch" if number in spilled else "arena")
        spans[number] = (found.kind, found.offset, found.offset + values[number].nbytes)
        assert spans[number][2] <= (scratch if number in spilled else arena)
    for one in live:
        for other in range(one):
            together = live[one].birth < live[other].death and live[other].birth < live[one].death
            if together and spans[one][0] == spans[other][0]:
                apart = spans[one][2] <= spans[other][1] or spans[other][2] <= spans[one][1]
                assert apart or 0 in (values[one].nbytes, values[other].nbytes)
    biggest = max(
        sum(values[v].nbytes for v in live if v not in spilled and live[v].birth <= t <= live[v].death)
        for t in range(100)
    )
    assert arena >= biggest


# ---- one pass at a time --------------------------------------------------------------------------------------------------------


def ops(draft: Draft, section: Any = "train_step") -> list[str]:
    """Instructions in short: `load head`, `call`, `free 7`."""
    lines = []
    for instruction in document_of(draft.compile())["sections"][section]:
        detail = instruction.get("group") or instruction.get("value", "")
        lines.append(f"{instruction['op']} {detail}".strip())
    return lines


def test_a_chain_of_values_takes_the_memory_of_two() -> None:
    draft = Draft()
    last = draft.make([[draft.batch()]], (16, 16))
    for _ in range(20):
        last = draft.make([[last]], (16, 16))
    draft.emit("loss", last)
    assert draft.compile().estimate.arena_bytes == 2 * 16 * 16 * 4


def test_a_value_lives_from_its_first_write_to_its_last_access() -> None:
    draft = Draft()
    x = draft.make([[draft.batch()]])
    y = draft.make([[x]])
    z = draft.make([[x], [y]])
    draft.emit("loss", z)
    assert ops(draft) == ["call", "call", "call", f"free {x}", f"free {y}", "emit", f"free {z}"]


def test_a_result_that_nothing_reads_is_freed_at_once() -> None:
    draft = Draft()
    x, unread = draft.value((4, 2)), draft.value((4, 2))
    draft.call([[draft.batch()]], ([x], "make"), ([unread], "make"))
    draft.emit("loss", x)
    assert ops(draft) == ["call", f"free {unread}", "emit", f"free {x}"]


def test_one_block_at_a_time_is_within_reach_and_shared_tables_stay() -> None:
    draft = Draft()
    first, second, rope = (draft.weight(group) for group in ("block_00", "block_01", "rope"))
    x = draft.make([[draft.batch()], [first], [rope]])
    y = draft.make([[x], [second], [rope]])
    z = draft.make([[y], [first], [rope]])
    draft.emit("loss", z)
    groups = [line for line in ops(draft) if not line.startswith(("call", "emit")) and line.split()[1] in BLOCKS]
    assert groups == [
        "load block_00",
        "load rope",
        "free block_00",
        "load block_01",
        "free block_01",
        "load block_00",
        "free block_00",
        "free rope",
    ]


def test_a_block_used_twice_in_a_row_stays() -> None:
    draft = Draft()
    w = draft.weight("block_00")
    x = draft.make([[draft.batch()], [w]])
    y = draft.make([[x]])
    z = draft.make([[y], [w]])
    draft.emit("loss", z)
    assert [line for line in ops(draft) if "block_00" in line] == ["load block_00", "free block_00"]


def test_checkpoints_are_the_values_that_wait_while_another_block_comes() -> None:
    draft = Draft()
    first, second, rope = (draft.weight(group) for group in ("block_00", "block_01", "rope"))
    x = draft.make([[draft.batch()], [first], [rope]])
    y = draft.make([[x], [second]])
    short = draft.make([[y], [second]])
    z = draft.make([[short], [first], [x]])
    draft.emit("loss", z)
    assert set(with_liveness(draft.plan).waiting["train_step"]) == {x, short}


def test_checkpoints_spilled_to_scratch_leave_the_arena() -> None:
    draft = Draft()
    first, second = draft.weight("block_00"), draft.weight("block_01")
    x = draft.make([[draft.batch()], [first]], (64, 64))
    y = draft.make([[x], [second]], (64, 64))
    z = draft.make([[y], [first], [x]], (64, 64))
    draft.emit("loss", z)
    kept, spilled = (draft.compile(spilled=waiting).estimate for waiting in ((), (x,)))
    assert (kept.scratch_bytes, spilled.scratch_bytes) == (0, 64 * 64 * 4)
    assert spilled.arena_bytes < kept.arena_bytes


@pytest.mark.parametrize(
    ("ranges", "needless"),
    [
        ([[0, 2], [2, 2]], True),
        ([[0, 4]], True),
        ([None], True),  # the whole value at once
        ([[0, 2]], False),  # rows 2 and 3 stay zero
        ([[2, 2], [0, 2]], False),  # whole, but not provably so for a pass that looks once
        ([[0, 3], [2, 2]], False),
    ],
)
def test_zeros_are_dropped_only_where_results_fill_everything(ranges: list[list[int] | None], needless: bool) -> None:
    draft = Draft()
    source = draft.make([[draft.batch()]])
    filled = draft.zeros((4, 2))
    for place_ in ranges:
        to = [filled] if place_ is None else [filled, *place_]
        draft.call([[source]], (to, "into"))
    draft.emit("filled", filled)
    assert (f"zero {filled}" not in ops(draft)) is needless
    draft.read(draft.compile())


def test_zeros_that_are_read_or_added_to_first_are_kept() -> None:
    draft = Draft()
    source = draft.make([[draft.batch()]])
    added, read = draft.zeros((4, 2)), draft.zeros((4, 2))
    draft.call([[source]], ([added], "add_to"))
    draft.call([[source]], ([added], "into"))
    draft.make([[read]])
    draft.call([[source]], ([read], "into"))
    draft.emit("a", added)
    draft.emit("b", read)
    assert {f"zero {added}", f"zero {read}"} <= set(ops(draft))


def test_a_sum_that_is_a_scalar_keeps_its_zero() -> None:
    """What clipping does: a scalar has no rows."""
    draft = Draft()
    source = draft.make([[draft.batch()]])
    total, replaced = draft.zeros(()), draft.zeros(())
    draft.call([[source]], ([total], "add_to"))
    draft.call([[source]], ([replaced], "into"))
    draft.emit("a", total)
    draft.emit("b", replaced)
    assert f"zero {total}" in ops(draft)
    assert f"zero {replaced}" not in ops(draft)


def test_results_in_place_take_nothing_but_what_is_added_to_a_value() -> None:
    draft = Draft()
    total, made, filled = draft.zeros((4, 2)), draft.value((4, 2)), draft.zeros((4, 2))
    for in_place, results in (
        (700, (([made], "make"), ([filled], "into"))),
        (600, (([total], "add_to"), ([total], "add_to"))),
    ):
        draft.call([[draft.batch()]], *results, workspace=10_000)
        draft.plan.graphs[-1].in_place_bytes = in_place
    for name, value in (("a", total), ("b", made), ("c", filled)):
        draft.emit(name, value)

    def estimate(costs: Costs, workspaces: dict[str, Workspace] | None = None) -> int:
        plan = compile_plan(
            draft.plan,
            with_liveness(draft.plan),
            costs,
            method="handmade",
            sequence_length=2,
            batch_size=2,
            choices={},
            workspaces=workspaces,
        )
        return plan.estimate.workspace_bytes

    assert estimate(Costs(0)) == 10_000
    added = 2 * 64  # 32 bytes each, at multiples of 64, in a region of their own
    assert estimate(Costs(0, results_in_place=True)) == 700 + added
    measured = {draft.plan.graphs[0].key: Workspace(5_000)}
    assert estimate(Costs(0, results_in_place=True), measured) == 5_000 + added
