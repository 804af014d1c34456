# SPDX-License-Identifier: Apache-2.0
"""Triton kernels for int4 weights: products, transposed products, rows of a table, and the statistics of the head.

W is int4 as in `bespoke.ops`: codes uint8 [out, 16 * groups], low nibble first, code = nibble - 8; scales fp16 [out, groups], each
of 32 columns. A tile of W is decoded in registers and never written. A decoded weight is exact: a 4-bit code times an 11-bit
significand.

Products of fp32 rows run on tensor cores in bf16 parts. A float is the sum of three bf16 numbers and a decoded weight the sum of
two. The kernels compute five of the six products; the sixth is below the rounding of fp32. The device core does the same with AMX.
Sums over the 32 or 64 summands of a tile begin at zero. Ordinary fp32 additions add them to the result, because tensor cores
truncate sums and the error would grow over a row. TF32 = True computes one product of factors of 11 bits.

One program computes each result in a fixed order, so it gives the same bits each time. A program reads nothing outside W for any
arguments: columns that W lacks are 0 and rows that a table lacks are NaN, which shows up in the loss.

Dimensions: N rows of x, `out` and `columns` of W. Constants in capitals are sizes of a tile.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["INTERPRETED", "embedding", "head_statistics", "linear", "linear_transposed"]

# Triton's interpreter (3.7) multiplies the bits of bf16 as whole numbers. There the parts stay fp32 with 8 bits of significand,
# which are the same numbers.
INTERPRETED: tl.constexpr = tl.constexpr(bool(triton.knobs.runtime.interpret))
# A device compiles a kernel once for all values of these. Only widths that are multiples of 16 get a kernel of their own.
_SIZES = ["rows", "groups", "offset"]


@triton.jit
def _decoded(codes, scales, row, rows, group, groups, GROUPS: tl.constexpr):
    """Weights fp32 [R, 32 * GROUPS]: rows `row` [R] from `group` on. Elements outside W are 0."""
    inside = (row >= 0) & (row < rows)
    byte = group * 16 + tl.arange(0, GROUPS * 16)
    there = inside[:, None] & ((byte >= 0) & (byte < groups * 16))[None, :]
    packed = tl.load(codes + row[:, None] * (groups * 16) + byte[None, :], mask=there, other=0x88)
    code = tl.interleave(packed & 15, packed >> 4).to(tl.float32) - 8.0
    column = group + tl.arange(0, GROUPS)
    there = inside[:, None] & ((column >= 0) & (column < groups))[None, :]
    scale = tl.load(scales + row[:, None] * groups + column[None, :], mask=there, other=0.0).to(tl.float32)
    w = tl.reshape(code, [row.shape[0], GROUPS, 32]) * scale[:, :, None]
    return tl.reshape(w, [row.shape[0], GROUPS * 32])


@triton.jit
def _added(total, a, w, TF32: tl.constexpr):
    """Computes total [N, M] + a [N, K] w [K, M], all fp32."""
    if TF32:
        return tl.dot(a, w, total, input_precision="tf32")
    a1 = (a.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)  # bf16's 8 bits of significand
    rest = a - a1
    a2 = (rest.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    a3 = rest - a2
    w1 = (w.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    w2 = w - w1
    if not INTERPRETED:
        a1, a2, a3 = a1.to(tl.bfloat16), a2.to(tl.bfloat16), a3.to(tl.bfloat16)
        w1, w2 = w1.to(tl.bfloat16), w2.to(tl.bfloat16)
    here = tl.dot(a3, w1)
    here = tl.dot(a2, w2, here)
    here = tl.dot(a1, w2, here)
    here = tl.dot(a2, w1, here)
    here = tl.dot(a1, w1, here)
    return total + here


@triton.jit(do_not_specialize=_SIZES)
def linear(
    x,
    codes,
    scales,
    start,
    y,
    rows,
    out,
    columns,
    groups,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    GROUPS: tl.constexpr,
    TF32: tl.constexpr,
):
    """y [N, out] = x [N, columns] W[:, start : start + columns]^T; `start` int64 in memory, a multiple of 32."""
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    o = tl.program_id(1) * OUT + tl.arange(0, OUT)
    first = (tl.load(start) // 32).to(tl.int32)
    total = tl.zeros([ROWS, OUT], tl.float32)
    for k in range(0, columns, GROUPS * 32):
        column = k + tl.arange(0, GROUPS * 32)
        a = tl.load(
            x + n[:, None] * columns + column[None, :],
            mask=(n < rows)[:, None] & (column < columns)[None, :],
            other=0.0,
        )
        w = _decoded(codes, scales, o, out, first + k // 32, groups, GROUPS)
        total = _added(total, a, tl.trans(w), TF32)
    tl.store(y + n[:, None] * out + o[None, :], total, mask=(n < rows)[:, None] & (o < out)[None, :])


@triton.jit(do_not_specialize=_SIZES)
def linear_transposed(
    g,
    codes,
    scales,
    start,
    acc,
    keep,
    dx,
    rows,
    out,
    columns,
    groups,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    GROUPS: tl.constexpr,
    TF32: tl.constexpr,
):
    """dx [N, columns] = g [N, out] W[:, start : start + columns], plus acc [N, columns] * keep [N] where they are not None."""
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = (tl.load(start) // 32).to(tl.int32) + tl.program_id(1) * GROUPS
    column = tl.program_id(1) * (GROUPS * 32) + tl.arange(0, GROUPS * 32)
    total = tl.zeros([ROWS, GROUPS * 32], tl.float32)
    for k in range(0, out, OUT):
        o = k + tl.arange(0, OUT)
        a = tl.load(g + n[:, None] * out + o[None, :], mask=(n < rows)[:, None] & (o < out)[None, :], other=0.0)
        w = _decoded(codes, scales, o, out, first, groups, GROUPS)
        total = _added(total, a, w, TF32)
    place = n[:, None] * columns + column[None, :]
    inside = (n < rows)[:, None] & (column < columns)[None, :]
    if acc is not None:
        share = tl.load(keep + n, mask=n < rows, other=0.0)
        total += tl.load(acc + place, mask=inside, other=0.0) * share[:, None]
    tl.store(dx + place, total, mask=inside)


@triton.jit(do_not_specialize=_SIZES)
def embedding(tokens, codes, scales, y, out, columns, groups, GROUPS: tl.constexpr):
    """y [N, columns] = rows `tokens` [N] (int64) of W."""
    n = tl.program_id(0)
    group = tl.program_id(1) * GROUPS
    row = tl.load(tokens + n + tl.arange(0, 1))  # [1]
    w = _decoded(codes, scales, row, out, group, groups, GROUPS)
    w = tl.where(((row >= 0) & (row < out))[:, None], w, float("nan"))
    column = group * 32 + tl.arange(0, GROUPS * 32)
    tl.store(y + n * columns + column[None, :], w, mask=(column < columns)[None, :])


@triton.jit(do_not_specialize=_SIZES)
def head_statistics(
    z,
    targets,
    start,
    offset,
    m,
    total,
    label,
    best,
    m_out,
    total_out,
    label_out,
    best_out,
    keep,
    size,
    STEP: tl.constexpr,
):
    """Adds logits z [N, size] of vocabulary rows [start + offset, start + offset + size) to the state of `bespoke.ops.head_chunk`.

    z becomes exp(z - m') and keep [N] = exp(m - m'). The written state may alias the one that is read.
    """
    n = tl.program_id(0)
    z += n * size
    top, index = float("-inf"), 0
    for s in range(0, size, STEP):
        i = s + tl.arange(0, STEP)
        v = tl.load(z + i, mask=i < size, other=float("-inf"))
        here = tl.max(v, 0)
        index = tl.where(here > top, tl.min(tl.where(v == here, i, size), 0), index)  # the first of equal maxima
        top = tl.maximum(top, here)
    before = tl.load(m + n)
    highest = tl.maximum(before, top)
    from_row = tl.load(start) + offset
    local = tl.load(targets + n) - from_row
    inside = (local >= 0) & (local < size)
    given = tl.load(z + local, mask=inside, other=0.0)
    tl.store(label_out + n, tl.where(inside, given, tl.load(label + n)))
    tl.store(best_out + n, tl.where(top > before, from_row + index, tl.load(best + n)))
    share = tl.exp(before - highest)
    added = 0.0
    tl.debug_barrier()  # read the target's logit before it is overwritten
    for s in range(0, size, STEP):
        i = s + tl.arange(0, STEP)
        p = tl.exp(tl.load(z + i, mask=i < size, other=float("-inf")) - highest)
        tl.store(z + i, p, mask=i < size)
        added += tl.sum(p, 0)
    tl.store(total_out + n, tl.load(total + n) * share + added)
    tl.store(keep + n, share)
    tl.store(m_out + n, highest)
