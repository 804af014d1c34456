# SPDX-License-Identifier: Apache-2.0
"""A chunk of the one-pass head over int4 rows as a single operator.

It holds the logits of a few vocabulary rows at a time, never [N, chunk].

    head_chunk_int4(h, W, targets, start, m, l, label, best)                 -> m, l, label, best        evaluation
    head_chunk_gradient_int4(h, W, targets, start, m, l, label, best, acc)   -> m, l, label, best, acc   training

W [C, D] holds rows [start, start + C) of the head; h, acc [N, D]; targets int64, N of them; start an int64 scalar; m, l, label
[N] in the dtype of h; best int64 [N]. The update is that of `bespoke.methods.head`, applied to each sub-tile of rows in turn:

    z = h W_s^T; m' = max(m, max z); keep = exp(m - m'); l' = l keep + sum exp(z - m'); acc' = acc keep + exp(z - m') W_s
    label' = z[target] where the target is among these rows; best' = the first row that reaches max z, where that exceeds m

The number of rows in a sub-tile changes only rounding. The reference decodes each sub-tile once for both products.
"""

from __future__ import annotations

from typing import Any

import torch

from bespoke.ops.int4 import GROUP, library, rows_at_once, scratch

LOGITS_AT_ONCE = 1 << 18  # 1 MiB in fp32

_STATE = "Tensor m, Tensor l, Tensor label, Tensor best"
_OPERANDS = f"Tensor h, Tensor codes, Tensor scales, Tensor targets, Tensor start, {_STATE}"

library.define(
    f"head_chunk_int4({_OPERANDS}) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
library.define(
    f"head_chunk_gradient_int4({_OPERANDS}, Tensor acc) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)

Statistics = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def head_rows_at_once(rows: int, groups: int) -> int:
    """Vocabulary rows in a sub-tile of the reference, for `rows` rows of h and a width of 32 * groups."""
    return max(1, min(rows_at_once(groups), max(GROUP, LOGITS_AT_ONCE // rows)))


def head_chunk_bytes(rows: int, out: int, columns: int) -> int:
    """Bytes of scratch that the reference takes: decoded rows, their logits, and a few numbers a row."""
    groups = -(-columns // GROUP)
    step = min(out, head_rows_at_once(rows, groups))
    return step * groups * (GROUP * 6 + 4) + rows * (step * 4 + 64)


def head_chunk_of_logits(
    z: torch.Tensor,
    targets: torch.Tensor,
    start: torch.Tensor,
    m: torch.Tensor,
    total: torch.Tensor,
    label: torch.Tensor,
    best: torch.Tensor,
) -> tuple[Statistics, torch.Tensor, torch.Tensor]:
    """The chunk's update from all logits z [N, C] at once, without its products; for a graph that is traced.

    Returns the new (m, l, label, best), and the factors that acc needs: keep [N] and exp(z - m') [N, C].
    """
    top, index = z.max(-1)
    new = torch.maximum(m, top)
    local = targets.reshape(-1) - start
    inside = (local >= 0) & (local < z.shape[1])
    here = z.gather(1, local.clamp(0, z.shape[1] - 1)[:, None])[:, 0]
    keep, p = torch.exp(m - new), torch.exp(z - new[:, None])
    state = new, total * keep + p.sum(-1), torch.where(inside, here, label), torch.where(top > m, index + start, best)
    return state, keep, p


def _update(
    h: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    targets: torch.Tensor,
    start: torch.Tensor,
    m: torch.Tensor,
    total: torch.Tensor,
    label: torch.Tensor,
    best: torch.Tensor,
    acc: torch.Tensor | None,
) -> None:
    """Update the state in place with the chunk's rows."""
    step = head_rows_at_once(max(1, h.shape[0]), scales.shape[1])
    offsets = targets.reshape(-1) - start
    for a in range(0, codes.shape[0], step):
        w = scratch.decode(codes[a : a + step], scales[a : a + step], h.shape[1], h.dtype)
        z = h @ w.t()  # [N, s]

        top, index = z.max(-1)
        local = offsets - a
        inside = (local >= 0) & (local < z.shape[1])
        here = z.gather(1, local.clamp(0, z.shape[1] - 1)[:, None])[:, 0]
        torch.where(inside, here, label, out=label)
        torch.where(top > m, index + (start + a), best, out=best)

        highest = torch.maximum(m, top)
        keep = m.sub_(highest).exp_()
        p = z.sub_(highest[:, None]).exp_()
        total.mul_(keep).add_(p.sum(-1))
        if acc is not None:
            acc.mul_(keep[:, None]).addmm_(p, w)
        m.copy_(highest)


def _head_chunk(
    h: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    targets: torch.Tensor,
    start: torch.Tensor,
    m: torch.Tensor,
    total: torch.Tensor,
    label: torch.Tensor,
    best: torch.Tensor,
) -> Statistics:
    m, total, label, best = (value.clone() for value in (m, total, label, best))
    _update(h, codes, scales, targets, start, m, total, label, best, None)
    return m, total, label, best


def _head_chunk_gradient(
    h: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    targets: torch.Tensor,
    start: torch.Tensor,
    m: torch.Tensor,
    total: torch.Tensor,
    label: torch.Tensor,
    best: torch.Tensor,
    acc: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    m, total, label, best, acc = (value.clone() for value in (m, total, label, best, acc))
    _update(h, codes, scales, targets, start, m, total, label, best, acc)
    return m, total, label, best, acc


for _name, _reference in (("head_chunk_int4", _head_chunk), ("head_chunk_gradient_int4", _head_chunk_gradient)):
    library.impl(_name, _reference, "CPU")
    library.impl(_name, _reference, "CUDA")


@torch.library.register_fake("bespoke::head_chunk_int4", lib=library)
def _head_chunk_fake(
    h: Any, codes: Any, scales: Any, targets: Any, start: Any, m: Any, total: Any, label: Any, best: Any
) -> Any:
    return tuple(torch.empty_like(value) for value in (m, total, label, best))


@torch.library.register_fake("bespoke::head_chunk_gradient_int4", lib=library)
def _head_chunk_gradient_fake(
    h: Any, codes: Any, scales: Any, targets: Any, start: Any, m: Any, total: Any, label: Any, best: Any, acc: Any
) -> Any:
    return tuple(torch.empty_like(value) for value in (m, total, label, best, acc))


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
) -> tuple[torch.Tensor, ...]:
    """The state after rows [start, start + C) of the head: m, l, label, best, and acc if it is given."""
    if acc is None:
        return torch.ops.bespoke.head_chunk_int4(h, codes, scales, targets, start, m, total, label, best)
    return torch.ops.bespoke.head_chunk_gradient_int4(h, codes, scales, targets, start, m, total, label, best, acc)
