# SPDX-License-Identifier: Apache-2.0
"""ATen's operators in MLX: one function each, which takes the operator's arguments with tensors as arrays.

This module imports MLX, so call `vendor.load_mlx` first. It works around two properties of MLX: `mx.full` of a bool gives int32
unless the value is an array, and `contiguous` cannot be exported, so a copy into another memory order is left out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import torch

Array = Any  # mx.array; mypy cannot see MLX's types because MLX is optional

DTYPES = {
    torch.float32: mx.float32,
    torch.float16: mx.float16,
    torch.uint8: mx.uint8,
    torch.int64: mx.int64,
    torch.bool: mx.bool_,
}


def full(shape: Sequence[int], value: float, dtype: Any) -> Array:
    return mx.full(tuple(shape), mx.array(value, dtype=dtype))


def _clamp(x: Array, min: float | None = None, max: float | None = None) -> Array:
    return mx.clip(x, min, max)


def _copy_to(x: Array, dtype: torch.dtype | None = None) -> Array:
    return x if dtype is None else x.astype(DTYPES[dtype])


def _expand(x: Array, sizes: Sequence[int]) -> Array:
    """Broadcasts. -1 keeps a dimension's size; new dimensions come first."""
    new = len(sizes) - x.ndim
    return mx.broadcast_to(x, [x.shape[i - new] if size == -1 else size for i, size in enumerate(sizes)])


def _mean(x: Array, dims: Sequence[int] | None, keep: bool = False) -> Array:
    return mx.mean(x, axis=tuple(dims) if dims else None, keepdims=keep)


def _power(x: Array, exponent: float) -> Array:
    return mx.square(x) if exponent == 2 else mx.power(x, exponent)


def _select(x: Array, dim: int, index: int) -> Array:
    return mx.squeeze(_slice(x, dim, index, index + 1), dim)


def _slice(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    index = [slice(None)] * x.ndim
    index[dim] = slice(start or 0, x.shape[dim] if end is None else min(end, x.shape[dim]), step)
    return x[tuple(index)]


def _slice_backward(g: Array, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Array:
    if step != 1:
        raise NotImplementedError("a step between the columns")
    before_and_behind = [(0, 0)] * g.ndim
    before_and_behind[dim] = (start, sizes[dim] - min(end, sizes[dim]))
    return mx.pad(g, before_and_behind)


def _softmax_backward(g: Array, y: Array, dim: int, _: torch.dtype) -> Array:
    return y * (g - mx.sum(g * y, axis=dim, keepdims=True))


def _split(x: Array, size: int, dim: int = 0) -> tuple[Array, ...]:
    return tuple(mx.split(x, list(range(size, x.shape[dim], size)), axis=dim))


def _sum(x: Array, dims: Sequence[int] | None = None, keep: bool = False) -> Array:
    return mx.sum(x, axis=tuple(dims) if dims else None, keepdims=keep)


def _times(x: Array, alpha: float) -> Array:
    return x if alpha == 1 else x * alpha


OPERATORS: dict[str, Callable[..., Any]] = {
    # shapes
    "aten._unsafe_view.default": mx.reshape,
    "aten.cat.default": lambda arrays, dim=0: mx.concatenate(list(arrays), axis=dim),
    "aten.clone.default": lambda x: x,
    "aten.expand.default": _expand,
    "aten.permute.default": mx.transpose,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.slice_backward.default": _slice_backward,
    "aten.split.Tensor": _split,
    "aten.squeeze.dim": mx.squeeze,
    "aten.stack.default": lambda arrays, dim=0: mx.stack(list(arrays), axis=dim),
    "aten.t.default": mx.transpose,
    "aten.transpose.int": mx.swapaxes,
    "aten.unsqueeze.default": mx.expand_dims,
    "aten.view.default": mx.reshape,
    # new values
    "aten._to_copy.default": _copy_to,
    "aten.arange.default": lambda end, dtype=None: mx.arange(end, dtype=DTYPES[dtype or torch.int64]),
    "aten.scalar_tensor.default": lambda value, dtype=None: mx.array(value, dtype=DTYPES[dtype or torch.float32]),
    "aten.zeros.default": lambda shape, dtype=None: full(shape, 0, DTYPES[dtype or torch.float32]),
    "aten.zeros_like.default": lambda x: full(x.shape, 0, x.dtype),
    # products
    "aten.bmm.default": mx.matmul,
    "aten.mm.default": mx.matmul,
    # element by element
    "aten.abs.default": mx.abs,
    "aten.add.Tensor": lambda a, b, alpha=1: a + _times(b, alpha),
    "aten.clamp.default": _clamp,
    "aten.div.Scalar": operator.truediv,
    "aten.div.Tensor": operator.truediv,
    "aten.exp.default": mx.exp,
    "aten.expm1.default": mx.expm1,
    "aten.log.default": mx.log,
    "aten.maximum.default": mx.maximum,
    "aten.mul.Scalar": operator.mul,
    "aten.mul.Tensor": operator.mul,
    "aten.neg.default": mx.negative,
    "aten.pow.Tensor_Scalar": _power,
    "aten.reciprocal.default": mx.reciprocal,
    "aten.rsqrt.default": mx.rsqrt,
    "aten.rsub.Scalar": lambda a, b, alpha=1: b - _times(a, alpha),
    "aten.sigmoid.default": mx.sigmoid,
    "aten.sigmoid_backward.default": lambda g, y: g * (y * (1 - y)),
    "aten.sign.default": mx.sign,
    "aten.silu.default": lambda x: x * mx.sigmoid(x),
    "aten.sqrt.default": mx.sqrt,
    "aten.sub.Tensor": lambda a, b, alpha=1: a - _times(b, alpha),
    "aten.tanh.default": mx.tanh,
    "aten.tanh_backward.default": lambda g, y: g * (1 - y * y),
    # over a dimension
    "aten._softmax.default": lambda x, dim, _: mx.softmax(x, axis=dim, precise=True),
    "aten._softmax_backward_data.default": _softmax_backward,
    "aten.mean.default": mx.mean,
    "aten.mean.dim": _mean,
    "aten.sum.default": _sum,
    "aten.sum.dim_IntList": _sum,
    # truths
    "aten.bitwise_and.Tensor": mx.logical_and,
    "aten.eq.Tensor": operator.eq,
    "aten.gt.Tensor": operator.gt,
    "aten.le.Tensor": operator.le,
    "aten.where.self": mx.where,
}
