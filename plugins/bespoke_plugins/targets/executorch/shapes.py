# SPDX-License-Identifier: Apache-2.0
"""Rules for operators that move or make elements: views, slices, joins, conversions, constants."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bespoke_plugins.targets.executorch.rules import RuleBook
from bespoke_plugins.targets.executorch.tape import Value, number

if TYPE_CHECKING:
    from bespoke_plugins.targets.executorch.lowering import Lowering

RULES = RuleBook()


@RULES(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.alias.default",
    "aten.lift_fresh_copy.default",
)
def _view(at: Lowering, x: Value, *_: Any, **__: Any) -> Value:
    return at.tape.view(x, at.shape)


@RULES("aten.expand.default")
def _expand(at: Lowering, x: Value, *_: Any, **__: Any) -> Value:
    return at.tape.expand(x, at.shape)


@RULES("aten._to_copy.default")
def _to_copy(at: Lowering, x: Value, **_: Any) -> Value:
    t, dtype = at.tape, at.node.meta["val"].dtype
    if x.kind == "truth" and at.kind != "truth":
        return t.binary("add", x, t.full((), 1.0), at.kind)
    if x.constant is not None and np.array_equal(x.constant, np.trunc(x.constant)):
        return t.constant(x.constant, at.kind) if (same := number(x)) is None else t.full(x.shape, same, at.kind)
    if x.kind == at.kind and (x.dtype is dtype or at.kind == "integer"):
        return x
    if (x.kind, dtype) == ("integer", torch.float32) and x.dtype is torch.float32:
        return t.kernel("aten::clone.out", [t.dense(x), None], [(x.shape, dtype)])[0]
    return t.real(x) if dtype is torch.float32 else t.converted(t.stored(x, x.dtype), dtype)


@RULES("aten.t.default")
def _t(at: Lowering, x: Value) -> Value:
    return at.tape.transpose(x, range(len(x.shape))[::-1])


@RULES("aten.transpose.int")
def _transpose(at: Lowering, x: Value, a: int, b: int) -> Value:
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return at.tape.transpose(x, order)


@RULES("aten.permute.default")
def _permute(at: Lowering, x: Value, order: Sequence[int]) -> Value:
    return at.tape.transpose(x, [axis % len(x.shape) for axis in order])


@RULES("aten.slice.Tensor")
def _slice(
    at: Lowering, x: Value, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> Value | None:
    if step != 1:
        return None
    axis %= len(x.shape)
    first, last, _ = slice(start, stop).indices(x.shape[axis])
    return at.tape.slice(x, axis, first, last)


@RULES("aten.select.int")
def _select(at: Lowering, x: Value, axis: int, index: int) -> Value:
    axis %= len(x.shape)
    index %= x.shape[axis]
    return at.tape.view(at.tape.slice(x, axis, index, index + 1), at.shape)


@RULES("aten.split.Tensor", "aten.split_with_sizes.default")
def _split(at: Lowering, x: Value, _: Any, axis: int = 0) -> list[Value]:
    axis %= len(x.shape)
    ends = np.cumsum([0, *[part.shape[axis] for part in at.node.meta["val"]]])
    return [at.tape.slice(x, axis, int(a), int(b)) for a, b in itertools.pairwise(ends)]


@RULES("aten.cat.default")
def _cat(at: Lowering, xs: list[Value], axis: int = 0) -> Value:
    return at.tape.concatenate(xs, axis % len(at.shape))


@RULES("aten.stack.default")
def _stack(at: Lowering, xs: list[Value], axis: int = 0) -> Value:
    axis %= len(at.shape)
    return at.tape.concatenate([at.tape.view(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in xs], axis)


@RULES("aten.slice_backward.default")
def _slice_backward(
    at: Lowering, g: Value, sizes: Sequence[int], axis: int, start: int, stop: int, step: int
) -> Value | None:
    if step != 1:
        return None
    axis %= len(sizes)
    first, last, _ = slice(start, stop).indices(sizes[axis])
    around = [0] * axis, [0] * (len(sizes) - axis - 1)
    return at.tape.pad(g, [*around[0], first, *around[1]], [*around[0], sizes[axis] - last, *around[1]])


@RULES("aten.select_backward.default")
def _select_backward(at: Lowering, g: Value, sizes: Sequence[int], axis: int, index: int) -> Value | None:
    axis %= len(sizes)
    index %= sizes[axis]
    return _slice_backward(at, at.tape.view(g, (*g.shape[:axis], 1, *g.shape[axis:])), sizes, axis, index, index + 1, 1)


# ---- constants ---------------------------------------------------------------------------------------------------------------


@RULES("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
def _zeros(at: Lowering, *_: Any, **__: Any) -> Value:
    return at.tape.full(at.shape, 0.0, at.kind)


@RULES("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def _ones(at: Lowering, *_: Any, **__: Any) -> Value:
    return at.tape.full(at.shape, 1.0, at.kind)


@RULES("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def _full(at: Lowering, _: Any, filling: float, **__: Any) -> Value:
    return at.tape.full(at.shape, filling, at.kind)


@RULES("aten.scalar_tensor.default")
def _scalar_tensor(at: Lowering, filling: float, **_: Any) -> Value:
    return at.tape.full((), filling, at.kind)


@RULES("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def _arange(at: Lowering, *numbers: Any, **_: Any) -> Value:
    return at.tape.constant(np.arange(*numbers), at.kind)
