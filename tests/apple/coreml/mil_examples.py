# SPDX-License-Identifier: Apache-2.0
"""Random operands and attributes for each operator of the interpreter, and what coremltools or torch says comes out of it.

Nothing here is of the code under test: shapes, values and attributes are drawn here, and the results are those of coremltools' own
value inference; where it has none, torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Arguments = dict[str, Any]
Rng = np.random.Generator

FLOATS, NUMBERS = (np.float32, np.float16), (np.float32, np.float16, np.int32)
SINGLE = (np.float32,)


def shape(rng: Rng, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(int(size) for size in rng.integers(1, 6, rng.integers(least, most + 1)))


def tensor(rng: Rng, sizes: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Floats of both signs and around 1, integers of both signs."""
    drawn = rng.integers(-9, 10, sizes) if np.dtype(dtype).kind == "i" else 2 * rng.standard_normal(sizes)
    return np.asarray(drawn).astype(dtype)


def axis_of(rng: Rng, sizes: tuple[int, ...]) -> int:
    """From either end."""
    return int(rng.integers(-len(sizes), len(sizes)))


def pick(rng: Rng, choices: tuple[Any, ...]) -> Any:
    return choices[rng.integers(len(choices))]


def unary(*types: Any, positive: bool = False, **extra: Callable[[Rng, Any], Any]) -> Callable[[Rng], Arguments]:
    def drawn(rng: Rng) -> Arguments:
        dtype = pick(rng, types)
        x = tensor(rng, shape(rng), dtype)
        return {
            "x": np.abs(x) + dtype(0.1) if positive else x,
            **{name: make(rng, dtype) for name, make in extra.items()},
        }

    return drawn


def binary(*types: Any, apart: bool = False, positive: bool = False) -> Callable[[Rng], Arguments]:
    """Operands whose shapes broadcast; one is shorter in half of the cases. `apart`: y is not near 0."""

    def drawn(rng: Rng) -> Arguments:
        dtype, sizes = pick(rng, types), shape(rng)
        narrow = tuple(1 if rng.random() < 0.3 else size for size in sizes)
        other = narrow[rng.integers(len(narrow)) :] if rng.random() < 0.5 else narrow
        x, y = tensor(rng, sizes, dtype), tensor(rng, other, dtype)
        if apart:
            y = np.where(y < 0, y - 1, y + 1).astype(dtype)
        if positive:
            x = np.abs(x) + dtype(0.1)
        return {"x": x, "y": y} if rng.random() < 0.5 or apart or positive else {"x": y, "y": x}

    return drawn


def reduction(*types: Any) -> Callable[[Rng], Arguments]:
    def drawn(rng: Rng) -> Arguments:
        x = tensor(rng, shape(rng), pick(rng, types))
        axes = rng.permutation(x.ndim)[: rng.integers(1, x.ndim + 1)]
        signed = [int(axis) - (x.ndim if rng.random() < 0.3 else 0) for axis in axes]
        return {"x": x, "axes": signed, "keep_dims": bool(rng.random() < 0.5)}

    return drawn


def _cast(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng), pick(rng, (*NUMBERS, np.bool_)))
    return {"x": x, "dtype": pick(rng, ("fp16", "fp32", "int32", "bool"))}


def _select(rng: Rng) -> Arguments:
    both = binary(np.float32, np.int32)(rng)
    whole = np.broadcast_shapes(both["x"].shape, both["y"].shape)
    return {
        "cond": rng.random(whole) < 0.5,
        "a": np.broadcast_to(both["x"], whole),
        "b": np.broadcast_to(both["y"], whole),
    }


def _clip(rng: Rng) -> Arguments:
    low, high = sorted(rng.standard_normal(2))
    dtype = np.float32
    return {"x": tensor(rng, shape(rng), dtype), "alpha": dtype(low), "beta": dtype(high)}


def _matmul(rng: Rng) -> Arguments:
    batch = shape(rng, 0, 2)
    n, k, m = (int(size) for size in rng.integers(1, 6, 3))
    flip_x, flip_y = (bool(flip) for flip in rng.random(2) < 0.5)
    x, y = tensor(rng, (*batch, n, k)), tensor(rng, (k, m) if rng.random() < 0.3 else (*batch, k, m))
    return {
        "x": np.swapaxes(x, -1, -2) if flip_x else x,
        "y": np.swapaxes(y, -1, -2) if flip_y else y,
        "transpose_x": flip_x,
        "transpose_y": flip_y,
    }


def _along_axis(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng))
    return {"x": x, "axis": axis_of(rng, x.shape)}


def _argmax(rng: Rng) -> Arguments:
    drawn = _along_axis(rng)
    return {**drawn, "x": np.round(drawn["x"]), "keep_dims": bool(rng.random() < 0.5)}  # with equal ones


def _reshape(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng), pick(rng, NUMBERS))
    sizes, rest = [], x.size
    while rest > 1 and len(sizes) < 3:
        sizes.append(pick(rng, tuple(size for size in range(1, rest + 1) if rest % size == 0)))
        rest //= sizes[-1]
    return {"x": x, "shape": [*sizes, rest]}


def _transpose(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng), pick(rng, NUMBERS))
    return {"x": x, "perm": [int(axis) for axis in rng.permutation(x.ndim)]}


def _expand_dims(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng, 1, 3), pick(rng, NUMBERS))
    axes = rng.permutation(x.ndim + 2)[:2] if rng.random() < 0.5 else [axis_of(rng, (*x.shape, 1))]
    return {"x": x, "axes": sorted(int(axis) for axis in axes)}


def _squeeze(rng: Rng) -> Arguments:
    sizes = list(shape(rng, 2, 4))
    axis = int(rng.integers(len(sizes)))
    sizes[axis] = 1
    return {"x": tensor(rng, tuple(sizes)), "axes": [axis - (len(sizes) if rng.random() < 0.5 else 0)]}


def _concat(rng: Rng) -> Arguments:
    sizes, interleave = list(shape(rng)), bool(rng.random() < 0.4)
    axis, values = axis_of(rng, tuple(sizes)), []
    for _ in range(rng.integers(2, 4)):
        values.append(tensor(rng, tuple(sizes)))
        sizes[axis] += 0 if interleave else int(rng.integers(3))
    return {"values": values, "axis": axis, "interleave": interleave}


def _stack(rng: Rng) -> Arguments:
    sizes = shape(rng, 1, 3)
    return {"values": [tensor(rng, sizes) for _ in range(rng.integers(2, 4))], "axis": axis_of(rng, (*sizes, 1))}


def _split(rng: Rng) -> Arguments:
    sizes = list(shape(rng))
    axis = axis_of(rng, tuple(sizes))
    if rng.random() < 0.5:
        parts = [int(size) for size in rng.integers(1, 4, rng.integers(2, 4))]
        sizes[axis] = sum(parts)
        return {"x": tensor(rng, tuple(sizes)), "split_sizes": parts, "axis": axis}
    count = int(rng.integers(2, 4))
    sizes[axis] *= count
    return {"x": tensor(rng, tuple(sizes)), "num_splits": count, "axis": axis}


def _slice_by_index(rng: Rng) -> Arguments:
    x = tensor(rng, tuple(size + 1 for size in shape(rng)), pick(rng, NUMBERS))
    begin = [int(rng.integers(size - 1)) for size in x.shape]
    end = [int(rng.integers(first + 1, size + 1)) for first, size in zip(begin, x.shape, strict=True)]
    masks = {
        name: [bool(bit) for bit in rng.random(x.ndim) < 0.3] for name in ("begin_mask", "end_mask", "squeeze_mask")
    }
    if all(masks["squeeze_mask"]):
        masks["squeeze_mask"][0] = False
    return {"x": x, "begin": begin, "end": end, "stride": [int(step) for step in rng.integers(1, 4, x.ndim)], **masks}


def _slice_by_size(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng), pick(rng, NUMBERS))
    begin = [int(rng.integers(size)) for size in x.shape]
    size = [int(rng.integers(1, whole - first + 1)) for first, whole in zip(begin, x.shape, strict=True)]
    return {"x": x, "begin": begin, "size": [-1 if rng.random() < 0.2 else one for one in size]}


def _tile(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng), pick(rng, NUMBERS))
    return {"x": x, "reps": [int(times) for times in rng.integers(1, 4, x.ndim)]}


def _pad(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng))
    padded = int(rng.integers(1, x.ndim + 1))
    return {
        "x": x,
        "pad": [int(size) for size in rng.integers(0, 3, 2 * padded)],
        "mode": "constant",
        "constant_val": np.float32(rng.standard_normal()),
    }


def _gather(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng, 1, 3), pick(rng, NUMBERS))
    axis = axis_of(rng, x.shape)
    return {"x": x, "indices": rng.integers(0, x.shape[axis], shape(rng, 1, 2)).astype(np.int32), "axis": axis}


def _gather_along_axis(rng: Rng) -> Arguments:
    x = tensor(rng, shape(rng), pick(rng, NUMBERS))
    axis = axis_of(rng, x.shape)
    sizes = list(x.shape)
    sizes[axis] = int(rng.integers(1, 5))
    return {"x": x, "indices": rng.integers(0, x.shape[axis], sizes).astype(np.int32), "axis": axis}


def _range(rng: Rng) -> Arguments:
    start, step = int(rng.integers(-5, 5)), int(rng.integers(1, 4))
    return {"start": np.int32(start), "end": np.int32(start + rng.integers(1, 20)), "step": np.int32(step)}


def _fill(rng: Rng) -> Arguments:
    return {"shape": list(shape(rng)), "value": tensor(rng, (), pick(rng, (np.float32, np.int32)))[()]}


def _blockwise(rng: Rng) -> Arguments:
    """int4 with a scale for every block of columns."""
    from coremltools.converters.mil.mil import types

    rows, blocks, size = (int(n) for n in rng.integers(1, 5, 3))
    data = rng.integers(-8, 8, (rows, blocks * size)).astype(types.nptype_from_builtin(types.int4))
    return {"data": data, "scale": tensor(rng, (rows, blocks))}  # scales of both signs, as in bundles


EXAMPLES: dict[str, Callable[[Rng], Arguments]] = {
    "abs": unary(*NUMBERS),
    "ceil": unary(*FLOATS),
    "exp": unary(*FLOATS),
    "floor": unary(*FLOATS),
    "identity": unary(*NUMBERS),
    "log": unary(*SINGLE, positive=True, epsilon=lambda rng, dtype: dtype(rng.random())),
    "rsqrt": unary(*SINGLE, positive=True, epsilon=lambda rng, dtype: dtype(rng.random())),
    "sigmoid": unary(*FLOATS),
    "sign": unary(*NUMBERS),
    "sinh": unary(*FLOATS),
    "sqrt": unary(*FLOATS, positive=True),
    "tanh": unary(*FLOATS),
    "add": binary(*NUMBERS),
    "sub": binary(*NUMBERS),
    "mul": binary(*NUMBERS),
    "maximum": binary(*NUMBERS),
    "minimum": binary(*NUMBERS),
    "floor_div": binary(np.float32, np.int32, apart=True),
    "real_div": binary(*FLOATS, apart=True),
    "pow": binary(np.float32, positive=True),
    "equal": binary(*NUMBERS),
    "greater": binary(*NUMBERS),
    "greater_equal": binary(*NUMBERS),
    "less": binary(*NUMBERS),
    "less_equal": binary(*NUMBERS),
    "logical_and": binary(np.bool_),
    "cast": _cast,
    "select": _select,
    "clip": _clip,
    "matmul": _matmul,
    "reduce_sum": reduction(np.float32, np.int32),
    "reduce_mean": reduction(np.float32),
    "reduce_max": reduction(np.float32, np.int32),
    "reduce_argmax": _argmax,
    "softmax": _along_axis,
    "reshape": _reshape,
    "transpose": _transpose,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "slice_by_index": _slice_by_index,
    "slice_by_size": _slice_by_size,
    "tile": _tile,
    "pad": _pad,
    "gather": _gather,
    "gather_along_axis": _gather_along_axis,
    "range_1d": _range,
    "fill": _fill,
    "constexpr_blockwise_shift_scale": _blockwise,
}


# ---- where coremltools does not say what comes out, or not of all attributes (its concat ignores interleave) --------------------


def _t(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _torch_pad(given: Arguments) -> torch.Tensor:
    pairs = [given["pad"][i : i + 2] for i in range(0, len(given["pad"]), 2)]
    last_first = [size for pair in reversed(pairs) for size in pair]
    return torch.nn.functional.pad(_t(given["x"]), last_first, value=float(given["constant_val"]))


def _torch_slice(given: Arguments) -> torch.Tensor:
    found = _t(given["x"])
    for dim, (begin, size) in enumerate(zip(given["begin"], given["size"], strict=True)):
        found = found.narrow(dim, begin, found.shape[dim] - begin if size == -1 else size)
    return found


def _torch_concat(given: Arguments) -> torch.Tensor:
    values = [_t(value) for value in given["values"]]
    whole = torch.cat(values, given["axis"])
    if not given["interleave"]:
        return whole
    size = values[0].shape[given["axis"]]
    order = [part * size + place for place in range(size) for part in range(len(values))]
    return whole.index_select(given["axis"], torch.tensor(order))


TORCH: dict[str, Callable[[Arguments], Any]] = {
    "concat": _torch_concat,
    "gather_along_axis": lambda given: _t(given["x"]).gather(given["axis"], _t(given["indices"]).long()),
    "identity": lambda given: _t(given["x"]),
    "pad": _torch_pad,
    "slice_by_size": _torch_slice,
    "softmax": lambda given: _t(given["x"]).softmax(given["axis"]),
    "constexpr_blockwise_shift_scale": lambda given: (
        _t(given["data"].astype(np.float32))
        * _t(given["scale"]).repeat_interleave(given["data"].shape[1] // given["scale"].shape[1], 1)
    ),
}


def tolerance(given: Arguments) -> float:
    """Relative to the largest value: fp16 rounds at 2^-11, and value inference does so within an operator."""
    arrays = [value for value in given.values() if isinstance(value, np.ndarray)] + list(given.get("values", []))
    return 2e-3 if any(array.dtype == np.float16 for array in arrays) or given.get("dtype") == "fp16" else 1e-6
