# SPDX-License-Identifier: Apache-2.0
"""Adds an adapter's share to an int4 product within the product's own operator.

A linear with an adapter is y = x W^T + s h B^T. XNNPACK computes s h B^T in memory, and another pass adds it to y. In the operator
the rank is a few summands more. Gradients have the same form: dy W + dh A.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bespoke_plugins.targets.executorch.fusing import in_order
from bespoke_plugins.targets.executorch.tape import Op, Tape, Value, number

OPERATORS = {  # a product -> the operator that also takes an adapter
    "bespoke::linear_int4.out": "bespoke::linear_int4_lora.out",
    "bespoke::linear_int4_transposed.out": "bespoke::linear_int4_transposed_lora.out",
}
MOST_RANK = 64  # LORA_RANK in bindings/native/src/kernels/int4.h


@dataclass(frozen=True)
class _Share:
    """factor * h b^T (flag 1, b [columns, rank]) or factor * h b (flag 0), and the nodes that compute it."""

    h: Value
    b: Value
    flag: int
    factor: float
    nodes: list[Op]


def add_adapters(tape: Tape, results: Sequence[Value]) -> None:
    """Replaces each addition of an adapter's share to a product. Neither may have another reader."""
    readers = Counter(value.base for op in tape.ops for value in op.inputs)
    readers.update(result.base for result in results)
    for op in [op for op in tape.ops if op.name == "add"]:
        for product, share in (op.inputs, op.inputs[::-1]):
            of, added = product.base.op, _share_of(share, readers)
            if of is None or of.name not in OPERATORS or readers[product.base] > 1 or added is None:
                continue
            if not product.numel == share.numel == op.outputs[0].numel:  # one of them is broadcast
                continue
            replace = {of, op, *added.nodes}
            arguments = [*of.arguments, added.h, added.b, added.flag, added.factor]
            fused = Op(OPERATORS[of.name], [*of.inputs, added.h, added.b], op.outputs, arguments=arguments)
            op.outputs[0].op = fused
            tape.ops = [fused if other is op else other for other in tape.ops if other is op or other not in replace]
            break
    tape.ops = in_order(tape.ops)


def _share_of(value: Value, readers: Counter[Value]) -> _Share | None:
    """The share that the value is, if nothing else reads what it is computed from."""
    factor, nodes = 1.0, []
    op = value.base.op
    if op is not None and op.name == "multiply" and readers[value.base] == 1:
        numbers = [found for one in op.inputs if (found := number(one)) is not None]
        others = [one for one in op.inputs if number(one) is None]
        if len(numbers) != 1:
            return None
        (factor,), (value,) = numbers, others
        nodes, op = [op], value.base.op
    if op is None or op.name != "matmul" or readers[value.base] > 1:
        return None
    h, b = op.inputs
    if len(h.shape) != 2 or not 0 < h.shape[1] <= MOST_RANK or h.constant is not None or b.constant is not None:
        return None
    return _Share(h, b, op.attributes["flag"], factor, [*nodes, op])
