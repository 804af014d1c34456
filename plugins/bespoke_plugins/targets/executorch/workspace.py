# SPDX-License-Identifier: Apache-2.0
"""Computes the memory that XNNPACK allocates to run a delegate, from its nodes and as XNNPACK's own planner does.

Values between nodes share memory by their lifetimes. A product packs its right operand again for each call. All delegates of a
process share one workspace, as large as the largest of them needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from bespoke_plugins.targets.executorch.qb4w.weight import PRODUCT, SHIFTS
from bespoke_plugins.targets.executorch.tape import Op, Value

ALIGNMENT = 64
TAIL_BYTES = 128  # XNN_EXTRA_BYTES: XNNPACK may read so far past the end of a tensor
PACKED_COLUMNS = 32  # the widest tile that XNNPACK packs for
_NEVER_IN_PLACE = frozenset(["matmul", "transpose", "slice", "concatenate", "pad", "quantize", PRODUCT, SHIFTS])

Life = tuple[int, int, int]  # bytes, first and last step


def xnnpack_bytes(nodes: Sequence[Op], external: set[Value]) -> int:
    """Workspace of a delegate whose arguments are `external`."""
    steps = _with_int8(_with_reshapes(nodes, external))
    readers = Counter(value for op in steps for value in op.inputs)
    blocks: dict[Value, Value] = {}  # value -> the value whose memory it uses
    lives: dict[Value, list[int]] = {}
    packed: list[Life] = []
    for step, op in enumerate(steps):
        for value in op.inputs:
            if value in blocks:
                lives[blocks[value]][1] = step
        for value in op.outputs:
            if value not in external:
                reused = _reusable(op, value, blocks, readers)
                blocks[value] = value if reused is None else blocks[reused]
                lives.setdefault(blocks[value], [step, step])[1] = step
        if op.name == "matmul" and op.inputs[1].constant is None:
            packed.append((_packed_bytes(op), step, step))
    sizes = [(value.nbytes + 2 * TAIL_BYTES, first, last) for value, (first, last) in lives.items()]
    return place([*sizes, *packed])[0]


def _with_reshapes(nodes: Sequence[Op], external: set[Value]) -> list[Op]:
    """Adds a reshape node for each view of a value that the delegate computes, before its first reader."""
    steps: list[Op] = []
    computed: set[Value] = set()
    for op in nodes:
        for value in op.inputs:
            if value.viewed in computed and value not in computed and value not in external:
                steps.append(Op("reshape", [value.base], [value]))
                computed.add(value)
        steps.append(op)
        computed |= set(op.outputs)
    return steps


def _with_int8(nodes: Sequence[Op]) -> list[Op]:
    """Adds the int8 copy of each left operand of an int4 product: 1 byte a number and 8 bytes a row, with 16 rows of padding."""
    steps: list[Op] = []
    rows: dict[Value, Value] = {}
    for op in nodes:
        if op.name == PRODUCT:
            (x,) = op.inputs
            if x not in rows:
                rows[x] = Value((x.numel + 8 * (x.shape[0] + 16),), torch.int8, "float")
                steps.append(Op("quantize", [x], [rows[x]]))
            op = Op(op.name, [rows[x]], op.outputs)
        steps.append(op)
    return steps


def _reusable(op: Op, result: Value, blocks: dict[Value, Value], readers: Counter[Value]) -> Value | None:
    """The first operand whose memory the result takes over. Both have one reader and the same size."""
    if op.name in _NEVER_IN_PLACE or readers[result] != 1:
        return None
    fitting = (
        value for value in op.inputs if value in blocks and readers[value] == 1 and value.nbytes == result.nbytes
    )
    return next(fitting, None)


def _packed_bytes(op: Op) -> int:
    """Bytes of a product's right operand, packed in tiles of whole columns with room for a bias."""
    right = op.inputs[1]
    deep, wide = (right.shape[-1], right.shape[-2]) if op.attributes["flag"] else right.shape[-2:]
    batch = right.numel // max(1, deep * wide)
    return batch * -(-wide // PACKED_COLUMNS) * PACKED_COLUMNS * (deep + 1) * 4


def place(lives: Iterable[Life]) -> tuple[int, list[int]]:
    """The total size and the offsets of blocks that share memory by their lifetimes.

    It places the largest block first. Each block takes the lowest place that is free for its whole lifetime.
    """
    lives = list(lives)
    offsets = [0] * len(lives)
    placed: list[int] = []
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i][0], lives[i][1], i)):
        size, first, last = lives[i]
        start = 0
        for j in sorted(placed, key=lambda j: offsets[j]):
            other, born, died = lives[j]
            if (
                born <= last
                and first <= died
                and offsets[j] < start + _rounded(size)
                and start < offsets[j] + _rounded(other)
            ):
                start = offsets[j] + _rounded(other)
        offsets[i] = start
        placed.append(i)
    return max((offsets[i] + _rounded(lives[i][0]) for i in placed), default=0), offsets


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
