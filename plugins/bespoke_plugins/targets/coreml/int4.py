# SPDX-License-Identifier: Apache-2.0
"""The SDK's operators on int4 weights in MIL. MIL has no bit operators, so floor, multiply and subtract unpack the codes.

    int8    a byte b in [-128, 127]: high = floor(b / 16), + 16 where that is negative; low = b - 16 floor(b / 16)
    int32   four bytes v, eight times: the code is v - 16 floor(v / 16), and v becomes floor(v / 16), which keeps the sign
    baked   constants of the spec, decoded by Core ML itself (constexpr_blockwise_shift_scale)

Dimensions: N rows of x, g or h; `out` rows of the weight; `columns` of the weight that are used, in groups of 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types

from bespoke.ops import EMBEDDING_INT4, HEAD_CHUNK_GRADIENT_INT4, HEAD_CHUNK_INT4, LINEAR_INT4, LINEAR_TRANSPOSED_INT4
from bespoke_plugins.targets.coreml.operators import cast, cut, dtype_of, reshape, shape_of, typed

GROUP = 32
_PER_GROUP = {"int8": 16, "int32": 4}  # elements that hold a group's codes


def _codes(packed: Var, dtype: str) -> Var:
    """Unpacks codes [out, n] to codes - 8 [out, 32 * groups] in `dtype`."""
    out, width = shape_of(packed)
    if dtype_of(packed) == "int8":
        byte = mb.cast(x=packed, dtype=dtype)
        high = mb.floor(x=mb.mul(x=byte, y=typed(1 / 16, dtype)))
        low = mb.sub(x=byte, y=mb.mul(x=high, y=typed(16, dtype)))
        wrapped = mb.add(x=high, y=typed(16, dtype))
        parts = [low, mb.select(cond=mb.less(x=high, y=typed(0, dtype)), a=wrapped, b=high)]
    else:
        parts, rest = [], packed
        for _ in range(8):
            above = mb.floor_div(x=rest, y=np.int32(16))
            parts.append(mb.cast(x=mb.sub(x=rest, y=mb.mul(x=above, y=np.int32(16))), dtype=dtype))
            rest = above
    flat = mb.reshape(x=mb.stack(values=parts, axis=2), shape=[out, len(parts) * width])
    return mb.sub(x=flat, y=typed(8, dtype))


def _decoded(packed: Var, scales: Var, columns: int, dtype: str) -> Var:
    """Decodes weights [out, columns]."""
    codes = _codes(packed, dtype)
    out, width = shape_of(codes)
    grouped = mb.reshape(x=codes, shape=[out, width // GROUP, GROUP])
    scaled = mb.mul(x=grouped, y=mb.expand_dims(x=cast(scales, dtype), axes=[2]))
    return cut(mb.reshape(x=scaled, shape=[out, width]), 1, 0, columns)


def _group_range(x: Var, first: Var, size: int, per_group: int) -> Var:
    """Columns of `size` groups from group `first` (int32 [1]) on."""
    column = mb.mul(x=first, y=np.int32(per_group))
    begin = mb.concat(values=[np.zeros(1, np.int32), column], axis=0)
    return mb.slice_by_size(x=x, begin=begin, size=[shape_of(x)[0], size * per_group])


def _weight(codes: Any, scales: Any, start: Any, columns: int, dtype: str) -> Var:
    """Columns [start, start + columns) of a weight, decoded."""
    groups = -(-columns // GROUP)
    if isinstance(codes, np.ndarray):
        return _constant(codes, scales, 0 if start is None else int(start), columns, dtype)
    per_group = _PER_GROUP[dtype_of(codes)]
    if start is None or shape_of(scales)[1] == groups:
        codes, scales = cut(codes, 1, 0, groups * per_group), cut(scales, 1, 0, groups)
    else:
        first = mb.floor_div(x=reshape(start, [1]), y=np.int32(GROUP))
        codes, scales = _group_range(codes, first, groups, per_group), _group_range(scales, first, groups, 1)
    return _decoded(codes, scales, columns, dtype)


def _constant(codes: np.ndarray, scales: np.ndarray, start: int, columns: int, dtype: str) -> Var:
    first, groups = start // GROUP, -(-columns // GROUP)
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1).astype(np.int8) - 8
    data = nibbles[:, first * GROUP : (first + groups) * GROUP].astype(types.nptype_from_builtin(types.int4))
    scale = scales[:, first : first + groups].astype(np.float16 if dtype == "fp16" else np.float32)
    return cut(mb.constexpr_blockwise_shift_scale(data=data, scale=scale), 1, 0, columns)


def _linear(dtype: str, x: Var, codes: Any, scales: Any, start: Any, columns: int) -> Var:
    return mb.matmul(x=x, y=_weight(codes, scales, start, columns, dtype), transpose_y=True)


def _linear_transposed(dtype: str, g: Var, codes: Any, scales: Any, start: Any, columns: int) -> Var:
    return mb.matmul(x=g, y=_weight(codes, scales, start, columns, dtype))


def _embedding(dtype: str, tokens: Var, codes: Any, scales: Any, columns: int) -> Var:
    """Gathers packed rows and then decodes them: a table that Core ML decodes would be dense in memory."""
    if isinstance(codes, np.ndarray):
        codes = mb.const(val=codes.view(np.int8))
        scales = mb.const(val=scales)
    return _decoded(
        mb.gather(x=codes, indices=tokens, axis=0), mb.gather(x=scales, indices=tokens, axis=0), columns, dtype
    )


def _head(
    dtype: str,
    h: Var,
    codes: Any,
    scales: Any,
    targets: Var,
    start: Var,
    m: Var,
    total: Var,
    label: Var,
    best: Var,
    acc: Var | None = None,
) -> list[Var]:
    """Computes `bespoke.ops.head_chunk` with products in `dtype` and statistics in fp32."""
    rows, width = shape_of(codes)[0] if isinstance(codes, Var) else len(codes), shape_of(h)[1]
    w = _weight(codes, scales, None, width, dtype)
    z = cast(mb.matmul(x=h, y=w, transpose_y=True), "fp32")  # [N, rows]
    top, index = mb.reduce_max(x=z, axes=[1], keep_dims=False), mb.reduce_argmax(x=z, axis=1, keep_dims=False)
    highest = mb.maximum(x=m, y=top)
    keep = mb.exp(x=mb.sub(x=m, y=highest))
    local = mb.sub(x=reshape(targets, [-1]), y=start)
    inside = mb.logical_and(x=mb.greater_equal(x=local, y=np.int32(0)), y=mb.less(x=local, y=np.int32(rows)))
    at = mb.minimum(x=mb.maximum(x=local, y=np.int32(0)), y=np.int32(rows - 1))
    here = mb.squeeze(x=mb.gather_along_axis(x=z, indices=mb.expand_dims(x=at, axes=[1]), axis=1), axes=[1])
    p = mb.exp(x=mb.sub(x=z, y=mb.expand_dims(x=highest, axes=[1])))
    results = [
        highest,
        mb.add(x=mb.mul(x=total, y=keep), y=mb.reduce_sum(x=p, axes=[1], keep_dims=False)),
        mb.select(cond=inside, a=here, b=label),
        mb.select(cond=mb.greater(x=top, y=m), a=mb.add(x=index, y=start), b=best),
    ]
    if acc is not None:
        results.append(mb.add(x=mb.mul(x=acc, y=mb.expand_dims(x=keep, axes=[1])), y=mb.matmul(x=p, y=w)))
    return results


TABLE: dict[str, Callable[..., Any]] = {
    LINEAR_INT4: _linear,
    LINEAR_TRANSPOSED_INT4: _linear_transposed,
    EMBEDDING_INT4: _embedding,
    HEAD_CHUNK_INT4: _head,
    HEAD_CHUNK_GRADIENT_INT4: _head,
}
"""Records whose first argument is the element type of the computation. The operator's operands follow."""
