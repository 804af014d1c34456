# SPDX-License-Identifier: Apache-2.0
"""Scratch that the native operators take, as a function of shapes: the single place, for all instruction sets.

The C++ counterparts are `product_scratch_bytes` and `head_scratch_bytes` in bindings/native/src/kernels/products.cpp; a test holds
both together. Operands are never copied: a thread decodes a panel of weights at a time, and the head keeps the logits of one
sub-tile.
"""

from __future__ import annotations

from bespoke.errors import GraphError

THREADS = 8  # that work on one operator at once; a larger pool leaves the rest idle
PANEL_BYTES = 256 * 32 * 4  # of a thread: as many decoded weights
HEAD_ROWS = 256  # rows of h whose logits are held at once
ALIGNMENT = 64  # bytes that finding an aligned address may cost
LOGITS_BYTES = (256 + 16) * 4  # of each: for the vocabulary rows of a sub-tile, padded
_PRODUCTS = ("linear_int4", "linear_int4_transposed")
_HEADS = ("head_chunk_int4", "head_chunk_gradient_int4")
_WITHOUT = ("embedding_int4", "elementwise")


def operator_scratch_bytes(name: str, rows: int, threads: int = THREADS) -> int:
    """Bytes that the operator `name` (`linear_int4`, ...) takes beside operands and results, for `rows` rows of x, g or h.

    `threads`: of the pool; a plan that is made before the device is known takes the default, which is the most.
    """
    panels = max(1, min(threads, THREADS)) * PANEL_BYTES + ALIGNMENT
    if name in _PRODUCTS:
        return panels
    if name in _HEADS:
        return panels + min(rows, HEAD_ROWS) * LOGITS_BYTES + HEAD_ROWS * 4
    if name in _WITHOUT:
        return 0
    raise GraphError(
        f"operator '{name}'", got="no operator of ours", expected=", ".join((*_PRODUCTS, *_HEADS, *_WITHOUT)),
        next_step="Ask for one of these; other operators say themselves what they take",
    )  # fmt: skip
