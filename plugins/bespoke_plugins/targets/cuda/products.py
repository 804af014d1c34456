# SPDX-License-Identifier: Apache-2.0
"""The five int4 operators of bespoke with Triton's kernels. Operands and results are those of `bespoke.ops`.

Rows are fp32 and all tensors lie on one device. Under TRITON_INTERPRET=1 that is the processor. Importing this imports triton.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from bespoke.errors import GraphError
from bespoke_plugins.targets.cuda import kernels

__all__ = ["EMBEDDING_GROUPS", "LOGITS_AT_ONCE", "OPERATORS", "STEP", "TILES", "Tiles", "tiles_of"]

LOGITS_AT_ONCE = 1 << 20  # logits in a sub-tile of the head: 4 MiB in fp32
STEP = 1024  # logits of a row that a program holds at once
_LARGEST = 1 << 31  # a kernel can count fewer numbers than this in a tensor


class Tiles(NamedTuple):
    """Sizes of a product's program: rows of x or g, rows of W, groups of 32 columns of W, and warps.

    A forward product loops over groups. A transposed product loops over rows of W.
    """

    rows: int
    out: int
    groups: int
    warps: int


# Few rows are an answer's tokens: the time goes into reading W once. Tensor cores take at least 16 rows.
TILES = {
    "linear": (Tiles(16, 32, 2, 4), Tiles(64, 64, 1, 8)),
    "linear_transposed": (Tiles(16, 32, 2, 4), Tiles(64, 32, 2, 4)),
}
EMBEDDING_GROUPS = 16


def tiles_of(kernel: str, rows: int) -> Tiles:
    """The tiles of a product (`linear` or `linear_transposed`) with this many rows."""
    few, many = TILES[kernel]
    return few if rows <= few.rows else many


def linear_int4(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    column_start: torch.Tensor | None,
    columns: int,
    tf32: bool = False,
) -> torch.Tensor:
    _check("linear_int4", x, codes, scales, x.ndim == 2 and x.shape[1] == columns, len(x) * len(codes))
    y = x.new_empty(x.shape[0], codes.shape[0])
    _run_linear(tf32, x.contiguous(), codes, scales, _start(column_start, x), y)
    return y


def linear_int4_transposed(
    g: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    column_start: torch.Tensor | None,
    columns: int,
    tf32: bool = False,
) -> torch.Tensor:
    _check("linear_int4_transposed", g, codes, scales, g.ndim == 2 and g.shape[1] == codes.shape[0], len(g) * columns)
    dx = g.new_empty(g.shape[0], columns)
    _run_transposed(tf32, g.contiguous(), codes, scales, _start(column_start, g), None, None, dx)
    return dx


def embedding_int4(
    tokens: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, columns: int, tf32: bool = False
) -> torch.Tensor:
    """Rows of a table. It contains no product, so tf32 changes nothing."""
    _check("embedding_int4", tokens, codes, scales, tokens.ndim == 1, len(tokens) * columns, torch.int64)
    y = torch.empty(tokens.shape[0], columns, dtype=torch.float32, device=tokens.device)
    grid = (tokens.shape[0], -(-columns // (32 * EMBEDDING_GROUPS)))
    if y.numel():
        kernels.embedding[grid](
            tokens.contiguous(),
            codes.contiguous(),
            scales.contiguous(),
            y,
            codes.shape[0],
            columns,
            scales.shape[1],
            GROUPS=EMBEDDING_GROUPS,
        )
    return y


def head_chunk_int4(
    h: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    targets: torch.Tensor,
    start: torch.Tensor,
    m: torch.Tensor,
    total: torch.Tensor,
    label: torch.Tensor,
    best: torch.Tensor,
    acc: torch.Tensor | None = None,
    tf32: bool = False,
) -> tuple[torch.Tensor, ...]:
    rows = h.shape[0]
    fits = h.ndim == 2 and targets.numel() == rows and all(value.shape == (rows,) for value in (m, total, label, best))
    _check("head_chunk_int4", h, codes, scales, fits and (acc is None or acc.shape == h.shape), rows * 32)
    h, targets, start = h.contiguous(), targets.contiguous(), _start(start, h)
    state = [value.contiguous() for value in (m, total, label, best)]
    new = [torch.empty_like(value) for value in state]
    sums = None if acc is None else acc.contiguous()
    zero, keep = _start(None, h), torch.empty_like(new[0])
    size = max(
        32, min(codes.shape[0], LOGITS_AT_ONCE // max(1, rows) // 32 * 32)
    )  # kernels are compiled for multiples of 16
    for offset in range(0, codes.shape[0] if rows else 0, size):
        part = codes[offset : offset + size], scales[offset : offset + size]
        z = h.new_empty(rows, part[0].shape[0])
        _run_linear(tf32, h, *part, zero, z)
        kernels.head_statistics[(rows,)](z, targets, start, offset, *state, *new, keep, z.shape[1], STEP=STEP)
        state = new
        if sums is not None:
            added = torch.empty_like(h)
            _run_transposed(tf32, z, *part, zero, sums, keep, added)
            sums = added
    statistics = new if state is new else [value.clone() for value in state]  # without rows or vocabulary nothing ran
    if acc is None or sums is None:
        return tuple(statistics)
    return (*statistics, acc.clone() if sums.data_ptr() == acc.data_ptr() else sums)


def _run_linear(
    tf32: bool, x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, start: torch.Tensor, y: torch.Tensor
) -> None:
    tiles = tiles_of("linear", x.shape[0])
    grid = (-(-x.shape[0] // tiles.rows), -(-y.shape[1] // tiles.out))
    if y.numel():
        kernels.linear[grid](
            x,
            codes.contiguous(),
            scales.contiguous(),
            start,
            y,
            *y.shape,
            x.shape[1],
            scales.shape[1],
            ROWS=tiles.rows,
            OUT=tiles.out,
            GROUPS=tiles.groups,
            TF32=tf32,
            num_warps=tiles.warps,
        )


def _run_transposed(
    tf32: bool,
    g: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    start: torch.Tensor,
    acc: torch.Tensor | None,
    keep: torch.Tensor | None,
    dx: torch.Tensor,
) -> None:
    tiles = tiles_of("linear_transposed", g.shape[0])
    grid = (-(-g.shape[0] // tiles.rows), -(-dx.shape[1] // (32 * tiles.groups)))
    if dx.numel():
        kernels.linear_transposed[grid](
            g,
            codes.contiguous(),
            scales.contiguous(),
            start,
            acc,
            keep,
            dx,
            *g.shape,
            dx.shape[1],
            scales.shape[1],
            ROWS=tiles.rows,
            OUT=tiles.out,
            GROUPS=tiles.groups,
            TF32=tf32,
            num_warps=tiles.warps,
        )


def _start(given: torch.Tensor | None, beside: torch.Tensor) -> torch.Tensor:
    """A first column or row for the kernels: int64 in the device's memory, so that no copy has to be awaited."""
    if given is None:
        return torch.zeros((), dtype=torch.int64, device=beside.device)
    return given.to(beside.device, torch.int64)


def _check(
    name: str,
    first: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    fits: bool,
    results: int,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Refuses operands that a kernel would read past the end. `results`: numbers in the largest tensor that it writes."""
    paired = codes.ndim == scales.ndim == 2 and codes.shape == (scales.shape[0], 16 * scales.shape[1])
    typed = (first.dtype, codes.dtype, scales.dtype) == (dtype, torch.uint8, torch.float16)
    small = max(results, *(math.prod(value.shape) for value in (first, codes))) < _LARGEST
    if not (fits and paired and typed and small):
        shown = ", ".join(
            f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}" for value in (first, codes, scales)
        )
        raise GraphError(
            f"operator '{name}'",
            got=f"operands {shown}" + ("" if small else f" and a result of {results:,} numbers"),
            expected=f"{str(dtype).removeprefix('torch.')} rows, codes uint8 [out, 16 * groups] and scales float16 [out, groups]"
            + ("" if small else ", and fewer than 2^31 numbers of each"),
            next_step="Build the bundle again from its source" + ("" if small else ", with fewer rows"),
        )


OPERATORS: dict[str, Callable[..., Any]] = {
    "linear_int4": linear_int4,
    "linear_int4_transposed": linear_int4_transposed,
    "embedding_int4": embedding_int4,
    "head_chunk_int4": head_chunk_int4,
    "head_chunk_gradient_int4": head_chunk_int4,
}
"""The operators by their names in `torch.ops.bespoke`. Each also takes `tf32`: products of factors of 11 bits, which are less exact
than those of fp32."""
