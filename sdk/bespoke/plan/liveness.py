# SPDX-License-Identifier: Apache-2.0
"""Adds `load` and `free`: a value lives from its first write to its last access, a weight group while it is in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bespoke.plan.access import reads, touched, writes
from bespoke.plan.draft import DraftValue
from bespoke.plan.instructions import Call, Free, Instruction, Load, Zero, unchecked
from bespoke.plan.kinds import ADAPTER_GROUP

SHARED_GROUPS = frozenset({"rope", ADAPTER_GROUP})  # small, used by every block: coming to it is not leaving a block


@dataclass(frozen=True)
class Interval:
    """A value is live from instruction `birth` to instruction `death`, both included."""

    birth: int
    death: int


def without_needless_zeros(code: Sequence[Instruction], values: Sequence[DraftValue]) -> list[Instruction]:
    """Drops the `zero` of a value that `into` results fill wholly before anything reads it."""
    covered: dict[int, int] = {}
    settled: dict[int, bool] = {}
    zeroed = {i.value for i in code if isinstance(i, Zero)}
    for instruction in code:
        for operand in reads(instruction):
            value = operand[0]
            if value in zeroed and value not in settled:
                settled[value] = covered.get(value, 0) == _rows(values[value])
        if isinstance(instruction, Call):
            for result in instruction.results:
                value = result.to[0]
                if value in zeroed and value not in settled:
                    # Ranges written in order from row 0 without a gap: the only pattern that is provably whole.
                    whole = len(result.to) == 1
                    start = 0 if whole else result.to[1]
                    rows = _rows(values[value]) if whole else result.to[2]
                    in_order = result.how == "into" and len(result.to) < 4 and start == covered.get(value, 0)
                    covered[value] = covered.get(value, 0) + rows if in_order else -(2**40)
    needless = {value for value, filled in settled.items() if filled}
    return [i for i in code if not (isinstance(i, Zero) and i.value in needless)]


def _rows(value: DraftValue) -> int:
    return value.shape[0] if value.shape else 1


def with_loads_and_frees(code: Sequence[Instruction], values: Sequence[DraftValue]) -> list[Instruction]:
    """The section with `load` before the first use of a group, and `free` after the last access of a value or group.

    A group is dropped when another block's weights come before its next use, so that one block at a time is within reach.
    """
    last: dict[int, int] = {}
    uses: list[set[str]] = []
    for position, instruction in enumerate(code):
        ids = touched(instruction)
        uses.append({group for value in ids if (group := values[value].group) is not None})
        for value in ids:
            if values[value].lifetime == "section":
                last[value] = position
    dies: dict[int, list[int]] = {}
    for value, position in last.items():
        dies.setdefault(position, []).append(value)
    leaves = _positions_where_groups_leave(uses)

    result: list[Instruction] = []
    loaded: set[str] = set()
    for position, instruction in enumerate(code):
        for group in sorted(uses[position] - loaded):
            result.append(unchecked(Load, op="load", group=group))
            loaded.add(group)
        result.append(instruction)
        for value in sorted(dies.get(position, [])):
            result.append(unchecked(Free, op="free", value=value, group=None))
        for group in sorted(leaves.get(position, set())):
            result.append(unchecked(Free, op="free", value=None, group=group))
            loaded.discard(group)
    return result


def _positions_where_groups_leave(uses: Sequence[set[str]]) -> dict[int, set[str]]:
    leaves: dict[int, set[str]] = {}
    following: dict[str, int] = {}
    next_other = [len(uses)] * (len(uses) + 1)  # next instruction that uses any block's weights, by position
    for position in range(len(uses) - 1, -1, -1):
        for group in uses[position]:
            again = following.get(group)
            if again is None or (
                group not in SHARED_GROUPS and _another_between(uses, group, position, again, next_other)
            ):
                leaves.setdefault(position, set()).add(group)
            following[group] = position
        next_other[position] = position if uses[position] - SHARED_GROUPS else next_other[position + 1]
    return leaves


def _another_between(uses: Sequence[set[str]], group: str, start: int, stop: int, next_other: Sequence[int]) -> bool:
    position = next_other[start + 1]
    return position < stop and bool(uses[position] - SHARED_GROUPS - {group})


def intervals(code: Sequence[Instruction], values: Sequence[DraftValue]) -> dict[int, Interval]:
    """Interval of each section value of a section that holds its frees."""
    birth: dict[int, int] = {}
    death: dict[int, int] = {}
    for position, instruction in enumerate(code):
        for operand in writes(instruction):
            if values[operand[0]].lifetime == "section":
                birth.setdefault(operand[0], position)
        if isinstance(instruction, Free) and instruction.value is not None:
            death[instruction.value] = position
    return {value: Interval(start, death[value]) for value, start in birth.items() if value in death}


def checkpoints(code: Sequence[Instruction], values: Sequence[DraftValue]) -> dict[int, int]:
    """Section values that wait while other weights come: id -> how many groups come in the longest wait.

    What is handed from one block to the next sees one group come. What waits longer may live in the mapped scratch file.
    """
    loads = [0]
    for instruction in code:
        loads.append(loads[-1] + (isinstance(instruction, Load) and instruction.group not in SHARED_GROUPS))
    previous: dict[int, int] = {}
    waits: dict[int, int] = {}
    for position, instruction in enumerate(code):
        if isinstance(instruction, Free):
            continue
        for value in touched(instruction):
            if values[value].lifetime != "section":
                continue
            before = previous.get(value)
            if before is not None and loads[position] - loads[before + 1] >= 1:
                waits[value] = max(waits.get(value, 0), loads[position] - loads[before + 1])
            previous[value] = position
    return waits
