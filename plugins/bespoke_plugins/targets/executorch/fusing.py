# SPDX-License-Identifier: Apache-2.0
"""Fuses consecutive elementwise nodes into one call of our own operator, which goes over memory once.

XNNPACK writes and reads a whole tensor between two nodes. A gated MLP's activation with its adapters takes 14 passes over the width
of a slice in XNNPACK and 5 in one operator. Its gradient takes 30 and 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from bespoke_plugins.targets.executorch.tape import Op, Tape, Value, float_bits, number

OPERATOR = "bespoke::elementwise.out"
# The order of kernels::Elementwise in bindings/native/src/kernels/int4.h. The two limits below are the operator's.
OPERATIONS = ("add", "subtract", "multiply", "sigmoid", "tanh", "constant")
MOST_REGISTERS, MOST_STEPS = 24, 64
LEAST_NODES, LEAST_ELEMENTS = 3, 1 << 14  # below these limits a call costs more than it saves


def fuse(tape: Tape, results: Sequence[Value]) -> None:
    """Fuses nodes of the tape if nothing else has to run between them."""
    kept = {result.base for result in results}
    ops = list(tape.ops)
    for group in _groups(ops):
        nodes = [op for place, op in enumerate(tape.ops) if group >> place & 1]
        fused = _Fused(nodes, kept | {value.base for op in tape.ops if op not in nodes for value in op.inputs})
        if fused.fits:
            op = fused.op()
            ops = [op if other is nodes[-1] else other for other in ops if other is nodes[-1] or other not in nodes]
    tape.ops = in_order(ops)


def _groups(ops: Sequence[Op]) -> list[int]:
    """Sets of nodes as bit masks over places. A set includes everything that lies between its members."""
    places = {op: place for place, op in enumerate(ops)}
    before: list[int] = []  # for each operation, everything that it depends on
    groups: dict[int, int] = {}  # elementwise node -> its set
    for place, op in enumerate(ops):
        makers = [places[value.base.op] for value in op.inputs if value.base.op is not None]
        needed = 0
        for maker in makers:
            needed |= before[maker] | 1 << maker
        before.append(needed)
        if not _elementwise(op):
            continue
        group = 1 << place
        for maker in makers:
            if maker in groups and not group >> maker & 1 and ops[maker].outputs[0].numel == op.outputs[0].numel:
                joined = group | groups[maker]
                if _closed(joined, before):
                    group = joined
        groups.update((member, group) for member in _members(group))
    return _without_circles(dict.fromkeys(groups.values()), before)


def _without_circles(groups: Iterable[int], before: list[int]) -> list[int]:
    """Groups that are large enough and can run as one call. A fused group's users wait for everything that any member needs."""
    kept = []
    for group in groups:
        if group.bit_count() < LEAST_NODES or not _closed(group, before):
            continue
        needed = group
        for member in _members(group):
            needed |= before[member]
        before[:] = [has | needed if has & group else has for has in before]
        kept.append(group)
    return kept


def _closed(group: int, before: Sequence[int]) -> bool:
    """Whether no operation outside the group lies between two members."""
    needed = 0
    for member in _members(group):
        needed |= before[member]
    return all(not before[other] & group for other in _members(needed & ~group))


def _members(group: int) -> list[int]:
    return [place for place in range(group.bit_length()) if group >> place & 1]


def _elementwise(op: Op) -> bool:
    if op.name not in OPERATIONS or op.outputs[0].numel < LEAST_ELEMENTS:
        return False
    return all(number(value.base) is not None or _whole(value, op.outputs[0].numel) for value in op.inputs)


def _whole(value: Value, count: int) -> bool:
    return value.constant is None and value.expanded is None and value.dtype is torch.float32 and value.numel == count


class _Fused:
    """A group's registers: inputs, outputs, then temporaries. A temporary's register is reused after its last reader."""

    def __init__(self, nodes: Sequence[Op], wanted: set[Value]) -> None:
        results = [op.outputs[0] for op in nodes]
        read = [value.base for op in nodes for value in op.inputs]
        self.inputs = list(dict.fromkeys(value for value in read if value not in results and number(value) is None))
        self.outputs = [value for value in results if value in wanted]
        self._registers = {value: place for place, value in enumerate((*self.inputs, *self.outputs))}
        self._count = len(self._registers)
        self._free: list[int] = []
        self.code: list[int] = []
        for value in read:
            if (constant := number(value)) is None or value in self._registers:
                continue
            self._registers[value] = register = self._next()
            self.code += [OPERATIONS.index("constant"), register, register, register, float_bits(constant)]
        for place, op in enumerate(nodes):
            self._step(op, {value.base for later in nodes[place + 1 :] for value in later.inputs})

    @property
    def fits(self) -> bool:
        return self._count <= MOST_REGISTERS and len(self.code) <= 5 * MOST_STEPS

    def op(self) -> Op:
        """The operator's call, which now computes the outputs."""
        op = Op(OPERATOR, list(self.inputs), list(self.outputs), arguments=[list(self.inputs), self.code])
        for value in self.outputs:
            value.op = op
        return op

    def _step(self, op: Op, needed: set[Value]) -> None:
        operands = [value.base for value in op.inputs]
        a, b = self._registers[operands[0]], self._registers[operands[-1]]
        for value in dict.fromkeys(
            operands
        ):  # in list order: a set's order follows addresses, so two builds would differ
            if value not in needed and value not in self.inputs and value not in self.outputs and number(value) is None:
                self._free.append(self._registers[value])
        (result,) = op.outputs
        if result not in self._registers:
            self._registers[result] = self._next()
        self.code += [OPERATIONS.index(op.name), self._registers[result], a, b, 0]

    def _next(self) -> int:
        if self._free:
            return self._free.pop()
        self._count += 1
        return self._count - 1


def in_order(ops: Sequence[Op]) -> list[Op]:
    """Sorts operations so that each follows its inputs and otherwise keeps the order."""
    done: dict[Op, Any] = {}

    def visit(op: Op) -> None:
        if op in done:
            return
        for value in op.inputs:
            if value.base.op is not None:
                visit(value.base.op)
        done[op] = None

    for op in ops:
        visit(op)
    return list(done)
