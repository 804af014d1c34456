# SPDX-License-Identifier: Apache-2.0
"""The three products with int4 weights, and their reference implementation.

    linear_int4(x, W)            y = x W^T            x [N, columns] -> y [N, out]
    linear_int4_transposed(g, W) dx = g W             g [N, out]     -> dx [N, columns]
    embedding_int4(tokens, W)    rows of W            tokens [N]     -> [N, columns]

W is int4, symmetric, in groups of 32 along `in`: codes uint8 [out, 16 * groups] (low nibble first, code = nibble - 8),
scales fp16 [out, groups], w = code * scale. Columns [column_start, column_start + columns) are used. column_start is a
scalar input (int64, multiple of 32), so the same graph serves every slice. The range ends at a multiple of 32 or at `in`.

The reference decodes a bounded number of weights at a time: no whole weight is ever dense. A decoded weight is exact in
fp32 (4-bit code times 11-bit significand). Arithmetic is in the dtype of the other operand.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

GROUP = 32  # weights that share a scale
DECODED_AT_ONCE = 1 << 20  # weights; 4 MiB in fp32

library = torch.library.Library("bespoke", "DEF")
library.define(
    "linear_int4(Tensor x, Tensor codes, Tensor scales, Tensor? column_start, int columns) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
library.define(
    "linear_int4_transposed(Tensor g, Tensor codes, Tensor scales, Tensor? column_start, int columns) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
library.define(
    "embedding_int4(Tensor tokens, Tensor codes, Tensor scales, int columns) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def decode(codes: torch.Tensor, scales: torch.Tensor, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Codes [n, 16 * groups] and scales [n, groups] -> weights [n, columns] in new memory."""
    dense = torch.empty(codes.shape[0], codes.shape[1] * 2, dtype=dtype, device=codes.device)
    nibbles = torch.empty((2, *codes.shape), dtype=torch.int16, device=codes.device)
    return _decode_into(dense, nibbles, codes, scales)[:, :columns]


def _decode_into(dense: torch.Tensor, nibbles: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Fill `dense` [n, 32 * groups], with `nibbles` int16 [2, n, 16 * groups] as scratch."""
    both, shifted = nibbles
    both.copy_(codes)  # 0x00hl -> 0x0h0l: two codes in one pass, low nibble first in memory
    torch.bitwise_left_shift(both, 4, out=shifted)
    both.bitwise_or_(shifted).bitwise_and_(0x0F0F)
    grouped = dense.view(codes.shape[0], -1, GROUP)
    grouped.copy_(both.view(torch.uint8).view(grouped.shape))
    grouped.sub_(8).mul_(scales.to(dense.dtype)[..., None])
    return dense


class _Scratch(threading.local):
    """Memory that decoded weights reuse: fresh pages cost more than decoding into them."""

    def __init__(self) -> None:
        self.held: dict[tuple[torch.dtype, torch.device], tuple[torch.Tensor, torch.Tensor]] = {}

    def decode(self, codes: torch.Tensor, scales: torch.Tensor, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """The result of `decode`, valid until the next call on this thread."""
        size = codes.numel()
        if size > DECODED_AT_ONCE // 2:
            return decode(codes, scales, columns, dtype)
        key = (dtype, codes.device)
        if key not in self.held:
            self.held[key] = (
                torch.empty(DECODED_AT_ONCE, dtype=dtype, device=codes.device),
                torch.empty(DECODED_AT_ONCE, dtype=torch.int16, device=codes.device),
            )
        dense, nibbles = self.held[key]
        shape = (codes.shape[0], codes.shape[1] * 2)
        return _decode_into(dense[: 2 * size].view(shape), nibbles[: 2 * size].view(2, *codes.shape), codes, scales)[
            :, :columns
        ]


scratch = _Scratch()


def decode_bytes(out: int, columns: int) -> int:
    """Bytes of scratch for decoding a weight [out, columns]: fp32 weights, their nibbles twice, scales in fp32."""
    groups = -(-columns // GROUP)
    return min(out, rows_at_once(groups)) * groups * (GROUP * 6 + 4)


def rows_at_once(groups: int) -> int:
    return max(1, DECODED_AT_ONCE // (groups * GROUP))


def _cut(
    codes: torch.Tensor, scales: torch.Tensor, column_start: torch.Tensor | None, columns: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The groups that hold columns [column_start, column_start + columns)."""
    first = 0 if column_start is None else int(column_start) // GROUP
    groups = -(-columns // GROUP)
    half = GROUP // 2
    return codes[:, first * half : (first + groups) * half], scales[:, first : first + groups]


def _linear(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, column_start: torch.Tensor | None, columns: int
) -> torch.Tensor:
    codes, scales = _cut(codes, scales, column_start, columns)
    step = rows_at_once(scales.shape[1])
    y = x.new_empty(x.shape[0], codes.shape[0])
    for a in range(0, codes.shape[0], step):
        w = scratch.decode(codes[a : a + step], scales[a : a + step], columns, x.dtype)
        torch.mm(x, w.t(), out=y[:, a : a + step])
    return y


def _linear_transposed(
    g: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, column_start: torch.Tensor | None, columns: int
) -> torch.Tensor:
    codes, scales = _cut(codes, scales, column_start, columns)
    step = rows_at_once(scales.shape[1])
    dx = g.new_zeros(g.shape[0], columns)
    for a in range(0, codes.shape[0], step):
        w = scratch.decode(codes[a : a + step], scales[a : a + step], columns, g.dtype)
        dx.addmm_(g[:, a : a + step], w)
    return dx


def _embedding(tokens: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, columns: int) -> torch.Tensor:
    return decode(codes[tokens], scales[tokens], columns, torch.float32).contiguous()


for _name, _reference in (
    ("linear_int4", _linear),
    ("linear_int4_transposed", _linear_transposed),
    ("embedding_int4", _embedding),
):
    library.impl(_name, _reference, "CPU")
    library.impl(_name, _reference, "CUDA")


@torch.library.register_fake("bespoke::linear_int4", lib=library)
def _linear_fake(x: Any, codes: Any, scales: Any, column_start: Any, columns: int) -> Any:
    return x.new_empty(x.shape[0], codes.shape[0])


@torch.library.register_fake("bespoke::linear_int4_transposed", lib=library)
def _linear_transposed_fake(g: Any, codes: Any, scales: Any, column_start: Any, columns: int) -> Any:
    return g.new_empty(g.shape[0], columns)


@torch.library.register_fake("bespoke::embedding_int4", lib=library)
def _embedding_fake(tokens: Any, codes: Any, scales: Any, columns: int) -> Any:
    return tokens.new_empty(tokens.shape[0], columns, dtype=torch.float32)


class _Linear(torch.autograd.Function):
    """Product with a gradient in x alone: W is frozen. functorch needs the form with `setup_context`."""

    @staticmethod
    def forward(x: Any, codes: Any, scales: Any, column_start: Any, columns: int) -> Any:
        return torch.ops.bespoke.linear_int4(x, codes, scales, column_start, columns)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, codes, scales, column_start, columns = inputs
        ctx.save_for_backward(codes, scales, *([] if column_start is None else [column_start]))
        ctx.columns = columns

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        codes, scales, *start = ctx.saved_tensors
        dx = torch.ops.bespoke.linear_int4_transposed(g, codes, scales, start[0] if start else None, ctx.columns)
        return dx, None, None, None, None


def linear_int4(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, column_start: torch.Tensor | None, columns: int
) -> torch.Tensor:
    """x [N, columns] times W[:, column_start : column_start + columns]^T -> [N, out], differentiable in x."""
    return _Linear.apply(x, codes, scales, column_start, columns)


def linear_int4_transposed(
    g: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, column_start: torch.Tensor | None, columns: int
) -> torch.Tensor:
    """g [N, out] times W[:, column_start : column_start + columns] -> [N, columns]."""
    return torch.ops.bespoke.linear_int4_transposed(g, codes, scales, column_start, columns)


def embedding_int4(tokens: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, columns: int) -> torch.Tensor:
    """Rows `tokens` [N] (int64) of W -> fp32 [N, columns]."""
    return torch.ops.bespoke.embedding_int4(tokens, codes, scales, columns)
