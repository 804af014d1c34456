# SPDX-License-Identifier: Apache-2.0
"""Assigns operations to stages: as few XNNPACK delegates as the kernels between them allow, and as little as possible to keep in
memory between stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bespoke_plugins.targets.executorch.tape import Op, Value

ROUNDS = 8  # most rounds of moving operations to a better stage; two or three are enough


@dataclass(frozen=True)
class Stage:
    """The nodes of one delegate and then kernels. Either list may be empty."""

    nodes: list[Op]
    kernels: list[Op]


def stages(ops: Sequence[Op], results: Sequence[Value]) -> list[list[Stage]]:
    """Candidate sequences of stages, to be compared by their memory."""
    order = _Order(ops, results)
    return [_row(ops, order.settled(place)) for place in (order.latest(), order.earliest())]


def _row(ops: Sequence[Op], place: dict[Op, int]) -> list[Stage]:
    stages = []
    for level in range(max(place.values(), default=-1) + 1):
        here = [op for op in ops if place[op] == level]
        stages.append(Stage([op for op in here if not op.is_kernel], [op for op in here if op.is_kernel]))
    return [stage for stage in stages if stage.nodes or stage.kernels]


class _Order:
    """Dependencies between operations and the cost of an order. A place is a stage's number. A stage runs nodes before kernels."""

    def __init__(self, ops: Sequence[Op], results: Sequence[Value]) -> None:
        self.ops = ops
        self.results = {result.base for result in results}
        self.before = {op: [value.base.op for value in op.inputs if value.base.op is not None] for op in ops}
        self.after: dict[Op, list[Op]] = {op: [] for op in ops}
        for op in ops:
            for earlier in dict.fromkeys(self.before[op]):
                self.after[earlier].append(op)

    def earliest(self) -> dict[Op, int]:
        place: dict[Op, int] = {}
        for op in self.ops:
            place[op] = self._lowest(op, place)
        return place

    def latest(self) -> dict[Op, int]:
        place = self.earliest()
        last = max(place.values(), default=0)
        for op in reversed(self.ops):
            place[op] = self._highest(op, place, last)
        return place

    def settled(self, place: dict[Op, int]) -> dict[Op, int]:
        """Moves one operation after the other while that lowers the memory held between stages."""
        last = max(place.values(), default=0)
        for _ in range(ROUNDS):
            moved = False
            for op in (*reversed(self.ops), *self.ops):
                before, costs = place[op], {}
                touched = {value.base for value in op.inputs} | set(op.outputs)
                for level in range(self._lowest(op, place), self._highest(op, place, last) + 1):
                    place[op] = level
                    costs[level] = sum(self._held(value, place) for value in touched)
                place[op] = min(costs, key=lambda level: (costs[level], -level))
                moved |= place[op] != before
            if not moved:
                break
        return place

    def _lowest(self, op: Op, place: dict[Op, int]) -> int:
        return max((place[p] + (p.is_kernel and not op.is_kernel) for p in self.before[op]), default=0)

    def _highest(self, op: Op, place: dict[Op, int], last: int) -> int:
        return min((place[user] - (op.is_kernel and not user.is_kernel) for user in self.after[op]), default=last)

    def _held(self, value: Value, place: dict[Op, int]) -> int:
        """Bytes times the steps for which a value is kept between operations; 0 within one delegate."""
        if value.op is None or value in self.results:
            return 0
        born = 2 * place[value.op] + value.op.is_kernel
        died = max((2 * place[user] + user.is_kernel for user in self.after[value.op]), default=born)
        return value.nbytes * (died - born + 1) if value.op.is_kernel or died != born else 0
