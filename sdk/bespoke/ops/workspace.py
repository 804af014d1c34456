# SPDX-License-Identifier: Apache-2.0
"""Scratch that the native operators take, as a function of shapes: the single place, an upper bound for all instruction sets.

The C++ counterpart is `scratch_bytes` in bindings/native/src/kernels/int4.h; a test holds both together. Operands are never
copied whole: a thread decodes a panel of weights at a time, and the head keeps the logits of one sub-tile.
"""

from __future__ import annotations

THREADS = 8  # that work on one operator at once; a larger pool leaves the rest idle
PANEL_BYTES = 80 * 1024  # of a thread: 256 x 64 decoded weights, and some rows of the other operand
HEAD_ROWS = 256  # rows of h whose logits are held at once
HEAD_COLUMNS = 256  # vocabulary rows of a sub-tile
_PRODUCTS = ("linear_int4", "linear_int4_transposed")
_HEADS = ("head_chunk_int4", "head_chunk_gradient_int4")


def operator_scratch_bytes(name: str, rows: int, threads: int = THREADS) -> int:
    """Bytes that the operator `name` (`linear_int4`, ...) takes beside operands and results, for `rows` rows of x, g or h.

    `threads`: of the pool; a plan that is made before the device is known takes the default, which is the most.
    """
    panels = min(threads, THREADS) * PANEL_BYTES
    if name in _PRODUCTS:
        return panels
    if name in _HEADS:
        return panels + min(rows, HEAD_ROWS) * (HEAD_COLUMNS + 16) * 4
    if name == "embedding_int4":
        return 0
    raise ValueError(f"no operator of ours: {name!r}")
