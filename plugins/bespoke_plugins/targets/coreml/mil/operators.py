# SPDX-License-Identifier: Apache-2.0
"""MIL's operators as its specification defines them, one function each. Parameters and defaults are the operator's. Floats come in
as fp32 and integers as int64. The interpreter rounds results to the declared type.

An operator raises ValueError for a case that it does not implement.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
FLOATS = frozenset({"fp16", "fp32"})
NUMBERS = FLOATS | {"int32"}
ANY = NUMBERS | {"bool", "int8"}
BOOL = frozenset({"bool"})


@dataclass(frozen=True)
class Operator:
    """One operator.

    `tensors` maps parameters that take tensors to their element types. The types in one call agree unless `mixed`. Other
    parameters are constants except those in `computed`.
    """

    run: Callable[..., Any]
    tensors: dict[str, frozenset[str]]
    computed: frozenset[str]
    mixed: bool
    parameters: frozenset[str]
    required: frozenset[str]


OPERATORS: dict[str, Operator] = {}


def _operator(
    *names: str,
    of: frozenset[str] = FLOATS,
    computed: Sequence[str] = (),
    mixed: bool = False,
    **tensors: frozenset[str],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function under `names`. `x`, `y` and `values` take tensors of types `of`; other tensors are named."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters
        known = {name: of for name in ("x", "y", "values") if name in parameters} | tensors
        required = frozenset(
            name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty
        )
        for name in names:
            OPERATORS[name] = Operator(function, known, frozenset(computed), mixed, frozenset(parameters), required)
        return function

    return register


# ---- one element at a time -----------------------------------------------------------------------------------------------


def _unary(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x: function(x)


def _binary(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, y: function(x, y)


_FLOATING: dict[str, Callable[..., Array]] = {
    "ceil": np.ceil,
    "exp": np.exp,
    "floor": np.floor,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
_SIGNED: dict[str, Callable[..., Array]] = {"abs": np.abs, "sign": np.sign}
_PAIRS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "equal": np.equal,
    "floor_div": np.floor_divide,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": np.multiply,
    "sub": np.subtract,
}
_FLOATING_PAIRS: dict[str, Callable[..., Array]] = {"pow": np.power, "real_div": np.divide}
for _table, _of in ((_FLOATING, FLOATS), (_SIGNED, NUMBERS)):
    for _name, _function in _table.items():
        _operator(_name, of=_of)(_unary(_function))
for _table, _of in ((_PAIRS, NUMBERS), (_FLOATING_PAIRS, FLOATS)):
    for _name, _function in _table.items():
        _operator(_name, of=_of)(_binary(_function))
_operator("logical_and", of=BOOL)(_binary(np.logical_and))


@_operator("rsqrt")
def _rsqrt(x: Array, epsilon: Any = 1e-12) -> Array:
    return 1 / np.sqrt(x + epsilon)


@_operator("log")
def _log(x: Array, epsilon: Any = 1e-45) -> Array:
    return np.log(x + epsilon)


@_operator("clip")
def _clip(x: Array, alpha: Array, beta: Array) -> Array:
    return np.minimum(np.maximum(x, alpha), beta)


@_operator("cast", of=ANY)
def _cast(x: Array, dtype: str) -> Array:
    """Converts a float to an integer towards 0. The interpreter checks the declared type against `dtype` and rounds to it."""
    return np.trunc(x) if dtype == "int32" and x.dtype.kind == "f" else x != 0 if dtype == "bool" else x


@_operator("identity", of=ANY)
def _identity(x: Array) -> Array:
    return x


@_operator("select", cond=BOOL, a=NUMBERS, b=NUMBERS, mixed=True)
def _select(cond: Array, a: Array, b: Array) -> Array:
    if a.dtype != b.dtype:
        raise ValueError(f"{a.dtype} or {b.dtype}")
    return np.where(cond, a, b)


# ---- products, sums, softmax -----------------------------------------------------------------------------------------------


@_operator("matmul")
def _matmul(x: Array, y: Array, transpose_x: Any = False, transpose_y: Any = False) -> Array:
    if min(x.ndim, y.ndim) < 2:
        raise ValueError("a matrix of fewer than 2 dimensions")
    return np.matmul(np.swapaxes(x, -1, -2) if transpose_x else x, np.swapaxes(y, -1, -2) if transpose_y else y)


@_operator("reduce_sum", of=NUMBERS)
def _reduce_sum(x: Array, axes: Array | None = None, keep_dims: Any = False) -> Array:
    return x.sum(_axes(axes, x), keepdims=bool(keep_dims))


@_operator("reduce_mean")
def _reduce_mean(x: Array, axes: Array | None = None, keep_dims: Any = False) -> Array:
    return x.mean(_axes(axes, x), keepdims=bool(keep_dims))


@_operator("reduce_max", of=NUMBERS)
def _reduce_max(x: Array, axes: Array | None = None, keep_dims: Any = False) -> Array:
    return x.max(_axes(axes, x), keepdims=bool(keep_dims))


@_operator("reduce_argmax", of=NUMBERS)
def _reduce_argmax(x: Array, axis: Any = -1, keep_dims: Any = False, output_dtype: str = "int32") -> Array:
    """The position of the largest element; the first if several are equal."""
    if output_dtype != "int32":
        raise ValueError(f"positions in {output_dtype}")
    return np.argmax(x, int(axis), keepdims=bool(keep_dims))


@_operator("softmax")
def _softmax(x: Array, axis: Any = -1) -> Array:
    e = np.exp(x - x.max(int(axis), keepdims=True))
    return e / e.sum(int(axis), keepdims=True)


def _axes(axes: Array | None, x: Array) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axes is None else tuple(int(axis) for axis in axes)


# ---- shapes ------------------------------------------------------------------------------------------------------------------


@_operator("reshape", of=ANY)
def _reshape(x: Array, shape: Array) -> Array:
    if (shape <= 0).any():
        raise ValueError(f"the shape {shape.tolist()}, which has a size to be inferred")
    return x.reshape(shape)


@_operator("transpose", of=ANY)
def _transpose(x: Array, perm: Array) -> Array:
    return np.transpose(x, perm)


@_operator("expand_dims", of=ANY)
def _expand_dims(x: Array, axes: Array) -> Array:
    return np.expand_dims(x, tuple(int(axis) for axis in axes))


@_operator("squeeze", of=ANY)
def _squeeze(x: Array, axes: Array | None = None) -> Array:
    return np.squeeze(x, None if axes is None else tuple(int(axis) for axis in axes))


@_operator("concat", of=ANY)
def _concat(values: Sequence[Array], axis: Any, interleave: Any = False) -> Array:
    """Joins arrays. `interleave`: the first slice of each, then the second of each, and so on."""
    if not interleave:
        return np.concatenate(values, int(axis))
    axis = int(axis) % values[0].ndim
    shape = list(values[0].shape)
    shape[axis] *= len(values)
    return np.stack(values, axis + 1).reshape(shape)


@_operator("stack", of=ANY)
def _stack(values: Sequence[Array], axis: Any) -> Array:
    return np.stack(values, int(axis))


@_operator("split", of=ANY)
def _split(x: Array, axis: Any, num_splits: Any = None, split_sizes: Array | None = None) -> list[Array]:
    if split_sizes is None:
        return np.split(x, int(num_splits), int(axis))
    if split_sizes.sum() != x.shape[int(axis)] or num_splits not in (None, len(split_sizes)):
        raise ValueError(f"the sizes {split_sizes.tolist()} of {x.shape[int(axis)]}")
    return np.split(x, np.cumsum(split_sizes)[:-1], int(axis))


@_operator("slice_by_index", of=ANY)
def _slice_by_index(
    x: Array,
    begin: Array,
    end: Array,
    stride: Array | None = None,
    begin_mask: Array | None = None,
    end_mask: Array | None = None,
    squeeze_mask: Array | None = None,
) -> Array:
    """Cuts out a slice. `begin_mask`: begin is 0. `end_mask`: to the end. `squeeze_mask`: only the element at begin."""
    no = np.zeros(x.ndim, bool)
    first, last, gone = (no if mask is None else mask for mask in (begin_mask, end_mask, squeeze_mask))
    steps = np.ones(x.ndim, np.int64) if stride is None else stride
    if len(begin) != x.ndim or (steps < 1).any():
        raise ValueError(f"the begins {begin.tolist()} and strides {steps.tolist()} of {x.ndim} dimensions")
    return x[
        tuple(
            int(a) * (not first[d])
            if gone[d]
            else slice(None if first[d] else int(a), None if last[d] else int(b), int(steps[d]))
            for d, (a, b) in enumerate(zip(begin, end, strict=True))
        )
    ]


@_operator("slice_by_size", of=ANY, computed=("begin",))
def _slice_by_size(x: Array, begin: Array, size: Array) -> Array:
    """Cuts out `size` elements; -1 means all that follow."""
    ends = np.where(size == -1, x.shape, begin + size)
    if (begin < 0).any() or (ends > x.shape).any():
        raise ValueError(f"from {begin.tolist()} to {ends.tolist()} of {list(x.shape)}")
    return x[tuple(slice(int(a), int(b)) for a, b in zip(begin, ends, strict=True))]


@_operator("tile", of=NUMBERS)
def _tile(x: Array, reps: Array) -> Array:
    if len(reps) != x.ndim:
        raise ValueError(f"{len(reps)} repetitions of {x.ndim} dimensions")
    return np.tile(x, reps)


@_operator("pad", of=NUMBERS)
def _pad(x: Array, pad: Array, mode: str = "constant", constant_val: Any = 0) -> Array:
    """Pads the last dimensions. `pad` has two numbers for each: before and after."""
    if mode != "constant":
        raise ValueError(f"the mode '{mode}'")
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + [(int(a), int(b)) for a, b in pad.reshape(-1, 2)]
    return np.pad(x, pairs, constant_values=constant_val)


INDICES = frozenset({"int32"})


@_operator("gather", of=ANY, indices=INDICES, mixed=True)
def _gather(x: Array, indices: Array, axis: Any = 0, batch_dims: Any = 0, validate_indices: Any = False) -> Array:
    if batch_dims:
        raise ValueError(f"batch_dims = {batch_dims}")
    _within(indices, x, int(axis))
    return np.take(x, indices, int(axis))


@_operator("gather_along_axis", of=ANY, indices=INDICES, mixed=True)
def _gather_along_axis(x: Array, indices: Array, axis: Any = 0, validate_indices: Any = False) -> Array:
    _within(indices, x, int(axis))
    return np.take_along_axis(x, indices, int(axis))


def _within(indices: Array, x: Array, axis: int) -> None:
    """Raises ValueError for an index out of bounds. MIL leaves the result undefined unless it validates indices."""
    if indices.size and not (indices.min() >= 0 and indices.max() < x.shape[axis]):
        raise ValueError(f"an index of {indices.min()} to {indices.max()} into {x.shape[axis]}")


# ---- what begins with constants --------------------------------------------------------------------------------------------------


@_operator("range_1d", start=NUMBERS, end=NUMBERS, step=NUMBERS)
def _range_1d(start: Any, end: Any, step: Any) -> Array:
    return np.arange(start.item(), end.item(), step.item())


@_operator("fill", value=NUMBERS | BOOL)
def _fill(shape: Array, value: Array) -> Array:
    return np.full(shape, value)


@_operator("constexpr_blockwise_shift_scale", data=frozenset({"int4", "int8"}), scale=FLOATS, mixed=True)
def _blockwise(data: Array, scale: Array) -> Array:
    """Multiplies data by scale. The ratio of the shapes is the size of a scale's block."""
    for axis, (size, blocks) in enumerate(zip(data.shape, scale.shape, strict=True)):
        if size % blocks:
            raise ValueError(f"{blocks} blocks of {size}")
        scale = np.repeat(scale, size // blocks, axis)
    return data * scale
