# SPDX-License-Identifier: Apache-2.0
"""Which operations run together: XNNPACK's nodes in as few delegates as the kernels between them allow, each operation in the stage
where least has to be kept between stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bespoke_plugins.targets.executorch.tape import Op, Value

ROUNDS = 8  # of moving operations to a better stage; it settles in two or three


@dataclass(frozen=True)
class Stage:
    """Nodes of one delegate, then kernels. Either may be empty."""

    nodes: list[Op]
    kernels: list[Op]


def stages(ops: Sequence[Op], results: Sequence[Value]) -> list[Stage]:
    place = _earliest(ops)
    _settle(ops, place, {result.base for result in results})
    found = []
    for level in range(max(place.values(), default=-1) + 1):
        here = [op for op in ops if place[op] == level]
        found.append(Stage([op for op in here if not op.is_kernel], [op for op in here if op.is_kernel]))
    return [stage for stage in found if stage.nodes or stage.kernels]


def _producers(op: Op) -> list[Op]:
    return [value.base.op for value in op.inputs if value.base.op is not None]


def _earliest(ops: Sequence[Op]) -> dict[Op, int]:
    place: dict[Op, int] = {}
    for op in ops:
        after = [place[p] + (p.is_kernel and not op.is_kernel) for p in _producers(op)]
        place[op] = max(after, default=0)
    return place


def _settle(ops: Sequence[Op], place: dict[Op, int], results: set[Value]) -> None:
    """Moves operations within what their order allows, while less memory is held from stage to stage."""
    readers: dict[Value, list[Op]] = {}
    for op in ops:
        for value in {value.base for value in op.inputs}:
            readers.setdefault(value, []).append(op)

    def held(value: Value) -> int:
        """Bytes times the steps that a value is kept between operations; within one delegate there are none."""
        if value.op is None or value in results:
            return 0
        born = 2 * place[value.op] + value.op.is_kernel
        died = max((2 * place[reader] + reader.is_kernel for reader in readers.get(value, [])), default=born)
        crosses = value.op.is_kernel or died != born
        return value.nbytes * (died - born + 1) if crosses else 0

    last = max(place.values(), default=0)
    for _ in range(ROUNDS):
        moved = False
        for op in (*reversed(ops), *ops):
            low = max((place[p] + (p.is_kernel and not op.is_kernel) for p in _producers(op)), default=0)
            users = [reader for output in op.outputs for reader in readers.get(output, [])]
            high = min((place[user] - (op.is_kernel and not user.is_kernel) for user in users), default=last)
            touched = {value.base for value in op.inputs} | set(op.outputs)
            costs = {}
            before = place[op]
            for level in range(low, high + 1):
                place[op] = level
                costs[level] = sum(held(value) for value in touched)
            place[op] = min(costs, key=lambda level: (costs[level], -level)) if costs else before
            moved |= place[op] != before
        if not moved:
            break
