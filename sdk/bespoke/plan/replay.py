# SPDX-License-Identifier: Apache-2.0
"""Replay from a journal: whether recorded values determine the stores of a step, and the instructions that make them."""

from __future__ import annotations

from collections.abc import Sequence

from bespoke.plan.access import reads, writes
from bespoke.plan.instructions import Call, Free, Instruction, Record, Role, Store


def replay_slice(code: Sequence[Instruction], roles: Sequence[Role]) -> list[int] | None:
    """Positions of the instructions that turn recorded values, state, noise and scalars into stores; None if some store
    depends on a batch or a weight, or if nothing is recorded."""
    makers: dict[int, list[int]] = {}
    for position, instruction in enumerate(code):
        for operand in writes(instruction):
            makers.setdefault(operand[0], []).append(position)
    todo = [position for position, instruction in enumerate(code) if isinstance(instruction, Store)]
    if not todo or not any(isinstance(i, Record) for i in code):
        return None
    kept: set[int] = set()
    while todo:
        position = todo.pop()
        if position in kept:
            continue
        kept.add(position)
        for operand in reads(code[position]):
            role = roles[operand[0]]
            if role in ("weight", "batch"):
                return None
            if role == "temporary":
                todo.extend(makers.get(operand[0], []))
    needed = {o[0] for p in kept for o in (*reads(code[p]), *writes(code[p]))}
    frees = [
        p for p, i in enumerate(code) if isinstance(i, Free) and i.value in needed and roles[i.value] == "temporary"
    ]
    return sorted([*kept, *frees])


def recorded_values(code: Sequence[Instruction]) -> list[int]:
    """Ids of the values that the journal keeps, in its order."""
    return [i.value for i in code if isinstance(i, Record)]


def is_replayable(code: Sequence[Instruction], roles: Sequence[Role]) -> bool:
    return replay_slice(code, roles) is not None and any(isinstance(i, Call) for i in code)
