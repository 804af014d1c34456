# SPDX-License-Identifier: Apache-2.0
"""ATen operators in MIL, one record for each that graphs have. Other operators are refused.

Values come from coremltools' builder. A Python number takes the element type of the value that it is combined with. MIL's
infinities are not safe to rely on (fp16 has none to spare). So the largest finite number replaces them, and a softmax turns its
negative into 0 as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types

Record = Callable[..., Any]

_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.int64: "int32", torch.int32: "int32", torch.bool: "bool"}
_NUMPY: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32, "bool": np.bool_}
_LIMITS = {"fp32": 1e30, "fp16": 6e4}  # largest number in a graph; infinities are clamped to it
_TINY = {
    "fp32": 1e-37,
    "fp16": 6.2e-5,
}  # about the smallest normal number, for operators that must add an epsilon


def dtype_of(x: Var) -> str:
    """The element type: "fp32", "fp16", "int32", "int8" or "bool"."""
    return str(types.builtin_to_string(x.dtype))


def typed(number: float, dtype: str) -> Any:
    """A Python number as a constant. Raises ValueError for an integer beyond int32."""
    if dtype == "int32" and not -(2**31) <= number < 2**31:
        raise ValueError(f"the integer {number}, which int32 does not hold")
    if dtype in _LIMITS:
        number = min(max(number, -_LIMITS[dtype]), _LIMITS[dtype])
    return _NUMPY[dtype](number)


def _both(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands as values or constants; one of them may be a Python number."""
    if isinstance(a, Var):
        return a, b if isinstance(b, Var) else typed(b, dtype_of(a))
    return typed(a, dtype_of(b)), b


def shape_of(x: Var) -> list[int]:
    return [int(size) for size in x.shape]


def cast(x: Var, dtype: str) -> Var:
    return x if dtype_of(x) == dtype else mb.cast(x=x, dtype=dtype)


# ---- arithmetic --------------------------------------------------------------------------------------------------------------


def _binary(operator: Record) -> Record:
    def record(a: Any, b: Any, alpha: float = 1) -> Var:
        a, b = _both(a, b)
        if alpha != 1:
            b = mb.mul(x=b, y=typed(alpha, dtype_of(a)))
        return operator(x=a, y=b)

    return record


_subtract = _binary(mb.sub)


def _expm1(x: Var) -> Var:
    """2 e^(x/2) sinh(x/2). exp(x) - 1 would lose the bits that Adam's bias correction needs at step 1."""
    half = mb.mul(x=x, y=typed(0.5, dtype_of(x)))
    return mb.mul(x=mb.mul(x=mb.exp(x=half), y=mb.sinh(x=half)), y=typed(2, dtype_of(x)))


def _pow(x: Var, exponent: float) -> Var:
    return mb.mul(x=x, y=x) if exponent == 2 else mb.pow(x=x, y=typed(exponent, dtype_of(x)))


def _clamp(x: Var, low: float | None = None, high: float | None = None) -> Var:
    dtype = dtype_of(x)
    bounds = [typed(-math.inf if low is None else low, dtype), typed(math.inf if high is None else high, dtype)]
    if dtype == "int32":
        return mb.minimum(x=mb.maximum(x=x, y=bounds[0]), y=bounds[1])
    return mb.clip(x=x, alpha=bounds[0], beta=bounds[1])


def _one_minus(x: Var) -> Var:
    return mb.sub(x=typed(1, dtype_of(x)), y=x)


def _sigmoid_backward(g: Var, y: Var) -> Var:
    return mb.mul(x=g, y=mb.mul(x=y, y=_one_minus(y)))


def _tanh_backward(g: Var, y: Var) -> Var:
    return mb.mul(x=g, y=_one_minus(mb.mul(x=y, y=y)))


def _bitwise_and(a: Var, b: Var) -> Var:
    if dtype_of(a) != "bool":
        raise ValueError("bits of integers, which MIL cannot get at")
    return mb.logical_and(x=a, y=b)


def _where(condition: Var, a: Any, b: Any) -> Var:
    a, b = _both(a, b)
    return mb.select(cond=condition, a=a, b=b)


# ---- sums and softmax ----------------------------------------------------------------------------------------------------------


def _reduce(operator: Record) -> Record:
    def record(
        x: Var, dims: Sequence[int] | None = None, keep: bool = False, *, dtype: torch.dtype | None = None
    ) -> Var:
        if dtype is not None and _DTYPES[dtype] not in (dtype_of(x), "fp32"):
            raise ValueError(f"a sum in {dtype}")
        rank = len(shape_of(x))
        if not rank:
            return x
        axes = [dim % rank for dim in dims] if dims else list(range(rank))
        return operator(x=x, axes=axes, keep_dims=keep)

    return record


def _softmax(x: Var, axis: int, half: bool) -> Var:
    if half:
        raise ValueError("a softmax that changes the element type")
    return mb.softmax(x=x, axis=axis)


def _softmax_backward(g: Var, y: Var, axis: int, dtype: torch.dtype) -> Var:
    if dtype != torch.float32:
        raise ValueError(f"a softmax in {dtype}")
    inner = mb.reduce_sum(x=mb.mul(x=g, y=y), axes=[axis % len(shape_of(y))], keep_dims=True)
    return mb.mul(x=y, y=mb.sub(x=g, y=inner))


# ---- shapes --------------------------------------------------------------------------------------------------------------------


def reshape(x: Var, sizes: Sequence[int]) -> Var:
    own, sizes = shape_of(x), list(sizes)
    if -1 in sizes:
        sizes[sizes.index(-1)] = math.prod(own) // -math.prod(sizes)
    if own == sizes:
        return x
    return mb.reshape(x=x, shape=sizes) if sizes else mb.squeeze(x=x, axes=list(range(len(own))))


def _transpose(x: Var, first: int, second: int) -> Var:
    order = list(range(len(shape_of(x))))
    order[first], order[second] = order[second], order[first]
    return mb.transpose(x=x, perm=order)


def cut(x: Var, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Var:
    """Slices x[start:end:step] along `dim`."""
    sizes = shape_of(x)
    start, end, step = slice(start, end, step).indices(sizes[dim])
    if (start, end, step) == (0, sizes[dim], 1):
        return x
    dim %= len(sizes)
    begins, ends, steps = [0] * len(sizes), list(sizes), [1] * len(sizes)
    begins[dim], ends[dim], steps[dim] = start, end, step
    return mb.slice_by_index(x=x, begin=begins, end=ends, stride=steps)


def _select(x: Var, dim: int, index: int) -> Var:
    size = shape_of(x)[dim]
    return mb.squeeze(x=cut(x, dim, index % size, index % size + 1), axes=[dim % len(shape_of(x))])


def _slice_backward(g: Var, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Var:
    start, end, step = slice(start, end, step).indices(sizes[dim])
    if step != 1:
        raise ValueError(f"a slice of step {step}")
    if (start, end) == (0, sizes[dim]):
        return g
    pads = [0] * (2 * len(sizes))
    pads[2 * (dim % len(sizes))], pads[2 * (dim % len(sizes)) + 1] = start, sizes[dim] - end
    return mb.pad(x=g, pad=pads, mode="constant", constant_val=typed(0, dtype_of(g)))


def _expand(x: Var, sizes: Sequence[int]) -> Var:
    own = [1] * (len(sizes) - len(shape_of(x))) + shape_of(x)
    x = reshape(x, own)
    times = [1 if have == want or want == -1 else want for have, want in zip(own, sizes, strict=True)]
    if set(times) <= {1}:
        return x
    if dtype_of(x) == "bool":  # which `tile` does not take
        return mb.cast(x=mb.tile(x=mb.cast(x=x, dtype="int32"), reps=times), dtype="bool")
    return mb.tile(x=x, reps=times)


def _split(x: Var, size: int, dim: int = 0) -> list[Var]:
    whole = shape_of(x)[dim]
    sizes = [min(size, whole - start) for start in range(0, whole, size)]
    return [x] if len(sizes) == 1 else list(mb.split(x=x, split_sizes=sizes, axis=dim))


def _cat(parts: Sequence[Var], dim: int = 0) -> Var:
    return mb.concat(values=list(parts), axis=dim) if len(parts) > 1 else parts[0]


# ---- constants -------------------------------------------------------------------------------------------------------------------


def filled(sizes: Sequence[int], number: float, dtype: str) -> Any:
    """A tensor that the device fills, so that the spec holds no table; a scalar is a constant."""
    return mb.fill(shape=list(sizes), value=typed(number, dtype)) if sizes else mb.const(val=typed(number, dtype))


def _zeros(sizes: Sequence[int], *, dtype: torch.dtype = torch.float32) -> Any:
    return filled(sizes, 0, _DTYPES[dtype])


def _zeros_like(x: Var, *, dtype: torch.dtype | None = None) -> Any:
    return filled(shape_of(x), 0, dtype_of(x) if dtype is None else _DTYPES[dtype])


def _arange(end: int, *, dtype: torch.dtype = torch.int64) -> Var:
    if _DTYPES[dtype] != "int32":
        raise ValueError(f"numbers from 0 in {dtype}")
    return mb.range_1d(start=np.int32(0), end=np.int32(end), step=np.int32(1))


def _to_copy(x: Any, *, dtype: torch.dtype | None = None) -> Any:
    if not isinstance(x, Var):
        return x if dtype is None or dtype.is_floating_point else int(x)
    return x if dtype is None else cast(x, _DTYPES[dtype])


TABLE: dict[str, Record] = {
    # arithmetic
    "aten.abs.default": lambda x: mb.abs(x=x),
    "aten.add.Tensor": _binary(mb.add),
    "aten.bitwise_and.Tensor": _bitwise_and,
    "aten.bmm.default": lambda a, b: mb.matmul(x=a, y=b),
    "aten.clamp.default": _clamp,
    "aten.div.Scalar": _binary(mb.real_div),
    "aten.div.Tensor": _binary(mb.real_div),
    "aten.eq.Tensor": _binary(mb.equal),
    "aten.exp.default": lambda x: mb.exp(x=x),
    "aten.expm1.default": _expm1,
    "aten.gt.Tensor": _binary(mb.greater),
    "aten.le.Tensor": _binary(mb.less_equal),
    "aten.log.default": lambda x: mb.log(x=x, epsilon=typed(_TINY[dtype_of(x)], dtype_of(x))),
    "aten.maximum.default": _binary(mb.maximum),
    "aten.mm.default": lambda a, b: mb.matmul(x=a, y=b),
    "aten.mul.Scalar": _binary(mb.mul),
    "aten.mul.Tensor": _binary(mb.mul),
    "aten.neg.default": lambda x: mb.mul(x=x, y=typed(-1, dtype_of(x))),
    "aten.pow.Tensor_Scalar": _pow,
    "aten.reciprocal.default": lambda x: mb.real_div(x=typed(1, dtype_of(x)), y=x),
    "aten.rsqrt.default": lambda x: mb.rsqrt(x=x, epsilon=typed(_TINY[dtype_of(x)], dtype_of(x))),
    "aten.rsub.Scalar": lambda a, b, alpha=1: _subtract(b, a, alpha),
    "aten.sigmoid.default": lambda x: mb.sigmoid(x=x),
    "aten.sigmoid_backward.default": _sigmoid_backward,
    "aten.sign.default": lambda x: mb.sign(x=x),
    "aten.sqrt.default": lambda x: mb.sqrt(x=x),
    "aten.sub.Tensor": _subtract,
    "aten.tanh.default": lambda x: mb.tanh(x=x),
    "aten.tanh_backward.default": _tanh_backward,
    "aten.where.self": _where,
    # sums and softmax
    "aten._softmax.default": _softmax,
    "aten._softmax_backward_data.default": _softmax_backward,
    "aten.mean.default": _reduce(mb.reduce_mean),
    "aten.mean.dim": _reduce(mb.reduce_mean),
    "aten.sum.default": _reduce(mb.reduce_sum),
    "aten.sum.dim_IntList": _reduce(mb.reduce_sum),
    # shapes
    "aten._to_copy.default": _to_copy,
    "aten._unsafe_view.default": reshape,
    "aten.cat.default": _cat,
    "aten.clone.default": lambda x: x,
    "aten.expand.default": _expand,
    "aten.select.int": _select,
    "aten.slice.Tensor": cut,
    "aten.slice_backward.default": _slice_backward,
    "aten.split.Tensor": _split,
    "aten.stack.default": lambda parts, dim=0: mb.stack(values=list(parts), axis=dim),
    "aten.t.default": lambda x: _transpose(x, 0, 1),
    "aten.transpose.int": _transpose,
    "aten.unsqueeze.default": lambda x, dim: mb.expand_dims(x=x, axes=[dim]),
    "aten.view.default": reshape,
    # constants
    "aten.arange.default": _arange,
    "aten.scalar_tensor.default": lambda number, dtype=None: number,
    "aten.zeros.default": _zeros,
    "aten.zeros_like.default": _zeros_like,
}
