# SPDX-License-Identifier: Apache-2.0
"""A record for each of bespoke's operators: its out variant, its floating-point operations and its workspace.

An out variant is the schema for an engine that writes results to given buffers (ExecuTorch). A result may share memory with
the operand of its name: `acc_out` with `acc`, `m_out` with `m`, and so on. No other operand overlaps a result. Engines
register them in the same namespace `bespoke`.

The workspace of the native operators is the same for all instruction sets and any number of threads. Its C++ counterparts are
`product_workspace_bytes`, `head_workspace_bytes` and `attention_workspace_bytes` in bindings/native/src/kernels; a test
compares them. A thread decodes a panel of weights at a time. Instruction sets that multiply something else than floats keep
what rows become in what is left: as many rows at a time as fit. The head keeps the logits of a sub-tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bespoke.errors import GraphError
from bespoke.ops.head_chunk import head_chunk_bytes
from bespoke.ops.int4 import decode_bytes

__all__ = [
    "OPERATORS",
    "OUT_VARIANTS",
    "CallSizes",
    "Int4Operator",
    "attention_workspace_bytes",
    "operator_workspace_bytes",
]

THREADS = 8  # that work on one call; a larger pool leaves the rest idle
PANEL_BYTES = 256 * 32 * 4  # of decoded weights
SCRATCH_BYTES = THREADS * PANEL_BYTES
HEAD_ROWS = 256  # rows of h whose logits are held at once
ALIGNMENT = 64  # bytes, the most that aligning an address costs
ATTENTION_QUERIES, SPAN_KEYS, LANES, FEW_ROWS = 32, 256, 16, 8  # of the native attention
LOGITS_BYTES = (256 + 16) * 4  # of a row of h: logits for the vocabulary rows of a sub-tile, padded


@dataclass(frozen=True)
class CallSizes:
    """Sizes of a call: shapes of its first operand (x, g, h or tokens) and of the codes, used columns, bytes of its results."""

    first: tuple[int, ...]
    codes: tuple[int, ...]
    columns: int
    result_bytes: int


@dataclass(frozen=True)
class Int4Operator:
    """An operator on int4 weights.

    flops:             multiplications and additions of a call
    torch_workspace:   bytes that the torch implementation takes in addition to operands and results
    native_workspace:  the same for the native kernels, by rows of the first operand
    """

    name: str
    out_variant: str
    flops: Callable[[CallSizes], int]
    torch_workspace: Callable[[CallSizes], int]
    native_workspace: Callable[[int], int]


def _scratch(rows: int) -> int:
    return SCRATCH_BYTES + ALIGNMENT


def _head_workspace(rows: int) -> int:
    return _scratch(rows) + min(rows, HEAD_ROWS) * LOGITS_BYTES + HEAD_ROWS * 4


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

OPERATORS: dict[str, Int4Operator] = {
    operator.name: operator
    for operator in (
        Int4Operator(
            "linear_int4",
            f"linear_int4.out(Tensor x, {_WEIGHT}, *, Tensor(a!) out) -> Tensor(a!)",
            flops=lambda call: 2 * call.first[0] * call.codes[0] * call.columns,
            torch_workspace=_decoded,
            native_workspace=_scratch,
        ),
        Int4Operator(
            "linear_int4_transposed",
            f"linear_int4_transposed.out(Tensor g, {_WEIGHT}, *, Tensor(a!) out) -> Tensor(a!)",
            flops=lambda call: 2 * call.first[0] * call.columns * call.first[1],
            torch_workspace=_decoded,
            native_workspace=_scratch,
        ),
        Int4Operator(
            "embedding_int4",
            "embedding_int4.out(Tensor tokens, Tensor codes, Tensor scales, int columns, *, Tensor(a!) out) -> Tensor(a!)",
            flops=lambda call: 0,
            torch_workspace=lambda call: call.result_bytes * 3 // 2,
            native_workspace=lambda rows: 0,
        ),
        Int4Operator(
            "head_chunk_int4",
            f"head_chunk_int4.out({_HEAD}, *, {_HEAD_OUT}) -> ({_HEAD_RETURNS})",
            flops=lambda call: _head_flops(call, 1),
            torch_workspace=_logits,
            native_workspace=_head_workspace,
        ),
        Int4Operator(  # logits, and the sum of rows
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


def operator_workspace_bytes(name: str, rows: int) -> int:
    """Bytes that the native operator `name` (`linear_int4`, ...) takes in addition to operands and results: `rows` of x, g or h."""
    if name not in OPERATORS:
        raise GraphError(
            f"operator '{name}'",
            got="no operator of bespoke",
            expected=", ".join(OPERATORS),
            next_step="Ask for one of these; other operators say themselves what they take",
        )
    return OPERATORS[name].native_workspace(rows)


def attention_workspace_bytes(rows: int, keys: int, heads: int, kv_heads: int, width: int) -> int:
    """Bytes that the native attention takes in addition to operands and results: `rows` positions that see `keys`.

    A thread holds the scores of some positions, by a span of keys, and two sums of values. A few positions are shared out by
    spans, and keep a sum for each.
    """
    group = heads // kv_heads
    task_rows = min(rows, max(1, ATTENTION_QUERIES // group))
    queries = task_rows * group
    sums = queries * (-(-width // LANES) * LANES + 2)
    thread = PANEL_BYTES + -(-4 * (queries * (LOGITS_BYTES // 4 + width) + 2 * sums) // 64) * 64
    spans = -(-rows // task_rows) * kv_heads * -(-keys // SPAN_KEYS) if rows <= FEW_ROWS else 0
    return THREADS * thread + 4 * spans * sums + ALIGNMENT
