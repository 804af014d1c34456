# SPDX-License-Identifier: Apache-2.0
"""The SDK's operators on int4 weights in MLX (sdk/bespoke/ops/int4.py and head_chunk.py define them).

Codes [out, 16 groups] are bytes with the low nibble first. Viewed as uint32 [out, 4 groups] they have MLX's order. Our weight is
(code - 8) * scale and MLX's is code * scale + bias. So bias = -8 scale, which is exact in float32.

    decode   the weights of a call in float32, then a product: exact weights, fast on a processor
    fused    MLX's quantized_matmul, which decodes as it multiplies: little memory, for a graphics card
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import mlx.core as mx

from bespoke.ops import EMBEDDING_INT4, HEAD_CHUNK_GRADIENT_INT4, HEAD_CHUNK_INT4, LINEAR_INT4, LINEAR_TRANSPOSED_INT4

Array = Any  # mx.array
Int4 = Literal["decode", "fused"]

GROUP = 32  # weights that share a scale
BITS = 4


def int4_operators(form: Int4) -> dict[str, Callable[..., Any]]:
    """The five operators by name, like ATen's in `operators.OPERATORS`."""
    product = _Decoded() if form == "decode" else _Fused()

    def head(*operands: Array) -> tuple[Array, ...]:
        return _head_chunk(product, *operands)

    return {
        LINEAR_INT4: product.linear,
        LINEAR_TRANSPOSED_INT4: product.transposed,
        EMBEDDING_INT4: _embedding,
        HEAD_CHUNK_INT4: head,
        HEAD_CHUNK_GRADIENT_INT4: head,
    }


def _cut(codes: Array, scales: Array, start: Array | None, columns: int) -> tuple[Array, Array]:
    """The groups of columns [start, start + columns). `start` is an int64 scalar operand."""
    groups = -(-columns // GROUP)
    if start is None or scales.shape[1] == groups:
        return codes[:, : 16 * groups], scales[:, :groups]
    first = mx.reshape(start, (1,)).astype(mx.int32) // GROUP
    return (
        mx.slice(codes, first * 16, (1,), (codes.shape[0], 16 * groups)),
        mx.slice(scales, first, (1,), (scales.shape[0], groups)),
    )


def _for_mlx(codes: Array, scales: Array) -> tuple[Array, Array, Array]:
    """Codes, scales and biases in MLX's format."""
    scales = scales.astype(mx.float32)
    return mx.view(codes, mx.uint32), scales, scales * -8.0


def _dense(codes: Array, scales: Array, columns: int) -> Array:
    return mx.dequantize(*_for_mlx(codes, scales), group_size=GROUP, bits=BITS)[:, :columns]


class _Decoded:
    def linear(self, x: Array, codes: Array, scales: Array, start: Array | None, columns: int) -> Array:
        return x @ _dense(*_cut(codes, scales, start, columns), columns).T

    def transposed(self, g: Array, codes: Array, scales: Array, start: Array | None, columns: int) -> Array:
        return g @ _dense(*_cut(codes, scales, start, columns), columns)


class _Fused:
    def linear(self, x: Array, codes: Array, scales: Array, start: Array | None, columns: int) -> Array:
        codes, scales = _cut(codes, scales, start, columns)
        padding = GROUP * scales.shape[1] - columns  # columns missing in the last group, whose codes mean 0
        if padding:
            x = mx.pad(x, [(0, 0), (0, padding)])
        return mx.quantized_matmul(x, *_for_mlx(codes, scales), transpose=True, group_size=GROUP, bits=BITS)

    def transposed(self, g: Array, codes: Array, scales: Array, start: Array | None, columns: int) -> Array:
        weight = _for_mlx(*_cut(codes, scales, start, columns))
        return mx.quantized_matmul(g, *weight, transpose=False, group_size=GROUP, bits=BITS)[:, :columns]


def _embedding(tokens: Array, codes: Array, scales: Array, columns: int) -> Array:
    return _dense(mx.take(codes, tokens, axis=0), mx.take(scales, tokens, axis=0), columns)


def _head_chunk(
    product: _Decoded | _Fused,
    h: Array,
    codes: Array,
    scales: Array,
    targets: Array,
    start: Array,
    m: Array,
    total: Array,
    label: Array,
    best: Array,
    acc: Array | None = None,
) -> tuple[Array, ...]:
    """The head's state after its rows [start, start + C), for h [N, D]. It computes the chunk's logits [N, C] at once."""
    width, rows = h.shape[1], codes.shape[0]
    z = product.linear(h, codes, scales, None, width)  # (N, C)
    top, index = mx.max(z, axis=-1), mx.argmax(z, axis=-1).astype(mx.int64)
    highest = mx.maximum(m, top)
    keep = mx.exp(m - highest)
    p = mx.exp(z - mx.expand_dims(highest, 1))
    local = mx.reshape(targets, (-1,)) - start
    inside = mx.logical_and(local >= 0, local < rows)
    here = mx.squeeze(mx.take_along_axis(z, mx.expand_dims(mx.clip(local, 0, rows - 1), 1), axis=1), 1)
    state = (
        highest,
        total * keep + mx.sum(p, axis=-1),
        mx.where(inside, here, label),
        mx.where(top > m, index + start, best),
    )
    if acc is None:
        return state
    return (*state, acc * mx.expand_dims(keep, 1) + product.transposed(p, codes, scales, None, width))
