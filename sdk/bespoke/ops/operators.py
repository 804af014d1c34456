# SPDX-License-Identifier: Apache-2.0
"""One record for each operator of bespoke: how an engine calls it, its floating-point operations, and the workspace it takes.

Out variants are the schemas of an engine that writes results to given buffers (ExecuTorch). A result may lie where the operand of
the same name does: `acc_out` may be `acc`, `m_out` may be `m`, and so on. Otherwise no operand overlaps a result. Engines register
them under the same namespace `bespoke`.

Workspace of the native operators is the same for all instruction sets. The C++ counterparts are `product_workspace_bytes` and
`head_workspace_bytes` in bindings/native/src/kernels/products.cpp; a test holds both together. Operands are never copied: a thread
decodes a panel of weights at a time, and the head keeps the logits of one sub-tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bespoke.errors import GraphError
from bespoke.ops.head_chunk import head_chunk_bytes
from bespoke.ops.int4 import decode_bytes

__all__ = ["OPERATORS", "OUT_VARIANTS", "CallSizes", "Operator", "operator_workspace_bytes"]

THREADS = 8  # that work on one operator at once; a larger pool leaves the rest idle
PANEL_BYTES = 256 * 32 * 4  # of a thread: as many decoded weights
HEAD_ROWS = 256  # rows of h whose logits are held at once
ALIGNMENT = 64  # bytes that finding an aligned address may cost
LOGITS_BYTES = (256 + 16) * 4  # of each: for the vocabulary rows of a sub-tile, padded


@dataclass(frozen=True)
class CallSizes:
    """A call: shapes of the first operand (x, g, h or tokens) and of the codes, columns that it uses, bytes of its results."""

    first: tuple[int, ...]
    codes: tuple[int, ...]
    columns: int
    result_bytes: int


@dataclass(frozen=True)
class Operator:
    """`flops`: multiplications and additions of a call. `torch_workspace`: bytes that the torch implementation takes besides
    operands and results. `native_workspace`: the same of the native kernels, by rows of the first operand and threads of
    the pool."""

    name: str
    out_variant: str
    flops: Callable[[CallSizes], int]
    torch_workspace: Callable[[CallSizes], int]
    native_workspace: Callable[[int, int], int]


def _panels(rows: int, threads: int) -> int:
    return max(1, min(threads, THREADS)) * PANEL_BYTES + ALIGNMENT


def _head_workspace(rows: int, threads: int) -> int:
    return _panels(rows, threads) + min(rows, HEAD_ROWS) * LOGITS_BYTES + HEAD_ROWS * 4


def _decoded(call: CallSizes) -> int:
    return decode_bytes(call.codes[0], call.columns)


def _logits(call: CallSizes) -> int:
    return head_chunk_bytes(call.first[0], call.codes[0], call.first[1])


def _head_flops(call: CallSizes, products: int) -> int:
    return products * 2 * math.prod(call.first) * call.codes[0]


_WEIGHT = "Tensor codes, Tensor scales, Tensor? column_start, int columns"
_HEAD = (
    "Tensor h, Tensor codes, Tensor scales, Tensor targets, Tensor start, Tensor m, Tensor l, Tensor label, Tensor best"
)
_HEAD_OUT = "Tensor(a!) m_out, Tensor(b!) l_out, Tensor(c!) label_out, Tensor(d!) best_out"
_HEAD_RETURNS = "Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!)"

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator(
            "linear_int4",
            f"linear_int4.out(Tensor x, {_WEIGHT}, *, Tensor(a!) out) -> Tensor(a!)",
            flops=lambda call: 2 * call.first[0] * call.codes[0] * call.columns,
            torch_workspace=_decoded,
            native_workspace=_panels,
        ),
        Operator(
            "linear_int4_transposed",
            f"linear_int4_transposed.out(Tensor g, {_WEIGHT}, *, Tensor(a!) out) -> Tensor(a!)",
            flops=lambda call: 2 * call.first[0] * call.columns * call.first[1],
            torch_workspace=_decoded,
            native_workspace=_panels,
        ),
        Operator(
            "embedding_int4",
            "embedding_int4.out(Tensor tokens, Tensor codes, Tensor scales, int columns, *, Tensor(a!) out) -> Tensor(a!)",
            flops=lambda call: 0,
            torch_workspace=lambda call: call.result_bytes * 3 // 2,
            native_workspace=lambda rows, threads: 0,
        ),
        Operator(
            "head_chunk_int4",
            f"head_chunk_int4.out({_HEAD}, *, {_HEAD_OUT}) -> ({_HEAD_RETURNS})",
            flops=lambda call: _head_flops(call, 1),
            torch_workspace=_logits,
            native_workspace=_head_workspace,
        ),
        Operator(  # logits, and the sum of rows
            "head_chunk_gradient_int4",
            f"head_chunk_gradient_int4.out({_HEAD}, Tensor acc, *, {_HEAD_OUT}, Tensor(e!) acc_out)"
            f" -> ({_HEAD_RETURNS}, Tensor(e!))",
            flops=lambda call: _head_flops(call, 2),
            torch_workspace=_logits,
            native_workspace=_head_workspace,
        ),
    )
}

OUT_VARIANTS: tuple[str, ...] = tuple(operator.out_variant for operator in OPERATORS.values())


def operator_workspace_bytes(name: str, rows: int, threads: int = THREADS) -> int:
    """Bytes that the native operator `name` (`linear_int4`, ...) takes besides operands and results, for `rows` rows of x, g or h.

    `threads`: of the pool; a plan that is made before the device is known takes the default, which is the most.
    """
    if name not in OPERATORS:
        raise GraphError(
            f"operator '{name}'",
            got="no operator of bespoke",
            expected=", ".join(OPERATORS),
            next_step="Ask for one of these; other operators say themselves what they take",
        )
    return OPERATORS[name].native_workspace(rows, threads)
