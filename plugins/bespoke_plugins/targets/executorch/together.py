# SPDX-License-Identifier: Apache-2.0
"""Puts int4 products of the same rows into one call, where rows are few.

A thread waits for the others at the end of each call. With one row that takes as long as a small product. So q, k and v are
one call, and gate and up are another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bespoke_plugins.targets.executorch.fusing import in_order
from bespoke_plugins.targets.executorch.tape import Op, Tape, Value, float_bits

OPERATOR = "bespoke::linears_int4.out"
PLAIN, ADAPTED = "bespoke::linear_int4.out", "bespoke::linear_int4_lora.out"
MOST = 4  # products of a call: kMostLinears in bindings/native/src/engines/executorch/operators.cpp


def put_together(tape: Tape) -> None:
    """Replaces products of the same rows of which none needs another."""
    groups: dict[Any, list[Op]] = {}
    for op in tape.ops:
        if op.name not in (PLAIN, ADAPTED) or op.arguments[3] is not None:
            continue
        group = groups.setdefault((op.name, op.arguments[0], op.arguments[4]), [])
        if len(group) < MOST and not _needs(op, group):
            group.append(op)
    for group in groups.values():
        if len(group) > 1:
            one = _as_one(group)
            tape.ops = [one if op is group[0] else op for op in tape.ops if op is group[0] or op not in group]
    tape.ops = in_order(tape.ops)


def _needs(op: Op, others: Sequence[Op]) -> bool:
    """Whether an operand is computed from a result of the others."""
    seen: set[Op] = set()
    waiting = [op]
    while waiting:
        for maker in _makers(waiting.pop()):
            if maker in others:
                return True
            if maker not in seen:
                seen.add(maker)
                waiting.append(maker)
    return False


def _makers(op: Op) -> Iterable[Op]:
    return (value.base.op for value in op.inputs if value.base.op is not None)


def _as_one(group: Sequence[Op]) -> Op:
    x, columns = group[0].arguments[0], group[0].arguments[4]
    weights = [value for op in group for value in op.arguments[1:3]]
    adapters: list[Value] | None = None
    fields: list[int] = [0]
    if group[0].name == ADAPTED:
        adapters = [value for op in group for value in op.arguments[5:7]]
        fields = [field for op in group for field in (int(op.arguments[7]), float_bits(op.arguments[8]))]
    outputs = [output for op in group for output in op.outputs]
    inputs = [x, *weights, *(adapters or [])]
    one = Op(OPERATOR, inputs, outputs, arguments=[x, weights, columns, adapters, fields])
    for output in outputs:
        output.op = one
    return one
