# SPDX-License-Identifier: Apache-2.0
"""A graph as a list of operations of the device: nodes of XNNPACK, and kernels that ExecuTorch calls by name.

Every value is contiguous. So a view is another shape of the same memory and costs nothing. XNNPACK computes in float32 alone.
Whole numbers up to 2^24 are exact there. A truth is 0 for true and -1 for false, so a mask can be added to scores directly.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

Shape = tuple[int, ...]
Kind = Literal["float", "integer", "truth"]
KINDS: dict[torch.dtype, Kind] = {
    torch.int64: "integer",
    torch.int32: "integer",
    torch.uint8: "integer",
    torch.bool: "truth",
}
MAX_RANK = 6  # most dimensions of an XNNPACK tensor
MAX_CONCATENATED = 5
FARTHEST = 1e6  # subtracted from masked scores: far below every score, and exp of the result is exactly zero


@dataclass(eq=False)
class Value:
    """A tensor: an operand, a constant, a result of an operation or a view of one of these."""

    shape: Shape
    dtype: torch.dtype
    kind: Kind
    operand: int | None = None
    constant: np.ndarray | None = None  # has one element if all elements are equal
    op: Op | None = None
    viewed: Value | None = None
    expanded: tuple[Value, Shape] | None = None  # a broadcast that is not yet in memory: the value and its new shape

    @property
    def base(self) -> Value:
        """The value that owns the memory."""
        return self.viewed or self

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


@dataclass(eq=False)
class Op:
    """An operation. `name`: a node of XNNPACK, or `namespace::operator.overload` of a kernel with its `arguments` in order."""

    name: str
    inputs: list[Value]
    outputs: list[Value] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    arguments: list[Any] = field(default_factory=list)

    @property
    def is_kernel(self) -> bool:
        return "::" in self.name


class Tape:
    """Records operations; the same operation on the same values is recorded once."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._known: dict[Any, Value] = {}
        self._constants: dict[Any, Value] = {}

    # ---- values ----------------------------------------------------------------------------------------------------------

    def operand(self, position: int, shape: Sequence[int], dtype: torch.dtype) -> Value:
        return Value(tuple(shape), dtype, KINDS.get(dtype, "float"), operand=position)

    def constant(self, array: Any, kind: Kind = "float") -> Value:
        data = np.ascontiguousarray(np.asarray(array, dtype=np.float32))
        if data.size == 1:
            return self.full(np.shape(array), float(data.reshape(())), kind)
        key = (data.shape, data.tobytes(), kind)
        return self._constants.setdefault(key, Value(data.shape, torch.float32, kind, constant=data))

    def full(self, shape: Sequence[int], number: float, kind: Kind = "float") -> Value:
        """A constant whose elements are all equal."""
        key = (tuple(shape), float(number), kind)
        data = np.asarray(number, dtype=np.float32)
        return self._constants.setdefault(key, Value(tuple(shape), torch.float32, kind, constant=data))

    def view(self, x: Value, shape: Sequence[int]) -> Value:
        """The same memory in another shape."""
        shape = tuple(shape)
        if shape == x.shape:
            return x
        if x.constant is not None:
            return self._reshaped(x, shape)
        if x.expanded is not None:
            return Value(shape, x.dtype, x.kind, expanded=x.expanded)
        base = x.base
        if shape == base.shape:
            return base
        return self._known.setdefault(("view", base, shape), Value(shape, x.dtype, x.kind, viewed=base))

    def _reshaped(self, x: Value, shape: Shape) -> Value:
        data = _array(x)
        return self.full(shape, float(data), x.kind) if data.size == 1 else self.constant(data.reshape(shape), x.kind)

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """Broadcasts a value, but defers it until a reader needs it in memory."""
        shape = tuple(shape)
        if shape == x.shape or x.numel == math.prod(shape):
            return self.view(x, shape)
        if number(x) is not None:
            return self._reshaped(x, shape)
        return Value(shape, x.dtype, x.kind, expanded=(self.dense(x), shape))

    def dense(self, x: Value) -> Value:
        """`x` in memory at its full shape."""
        if x.expanded is None:
            return x
        source, shape = x.expanded
        source_shape = (1,) * (len(shape) - len(source.shape)) + source.shape
        grown = [size if size != had else 1 for size, had in zip(shape, source_shape, strict=True)]
        zeros = self.constant(np.zeros(grown))
        return self.view(self.node("add", [self.real(source), zeros], shape, x.kind), x.shape)

    def real(self, x: Value) -> Value:
        """`x` as float32 in memory for XNNPACK; a truth is 0 or -1."""
        x = self.dense(x)
        if x.dtype is torch.float32:
            return x
        copied = self.converted(x, torch.float32)
        if x.kind == "truth":
            copied.kind = "float"
            copied = self.binary("subtract", copied, self.full((), 1.0))
        copied.kind = x.kind
        return copied

    def stored(self, x: Value, dtype: torch.dtype) -> Value:
        """`x` in memory with elements of `dtype`, for kernels."""
        x = self.dense(x)
        if x.dtype is dtype:
            return x
        if x.kind == "truth" and x.dtype is torch.float32:
            x = self.binary("add", x, self.full((), 1.0))
        return self.converted(x, dtype)

    def converted(self, x: Value, dtype: torch.dtype) -> Value:
        return self.kernel("aten::_to_copy.out", [x, False, None], [(x.shape, dtype)])[0]

    # ---- nodes of XNNPACK --------------------------------------------------------------------------------------------------

    def node(
        self, name: str, inputs: Sequence[Value], shape: Sequence[int], kind: Kind = "float", **attributes: Any
    ) -> Value:
        key = (name, tuple(inputs), tuple(shape), kind, tuple(sorted(attributes.items())))
        if key not in self._known:
            op = Op(name, list(inputs), attributes=attributes)
            self._known[key] = Value(tuple(shape), torch.float32, kind, op=op)
            op.outputs = [self._known[key]]
            self.ops.append(op)
        return self._known[key]

    def unary(self, name: str, x: Value, kind: Kind = "float", **attributes: Any) -> Value:
        x = self.real(x)
        return self.node(name, [x], x.shape, kind, **attributes)

    def clamp(self, x: Value, low: float, high: float, kind: Kind | None = None) -> Value:
        return self.unary("clamp", x, kind or x.kind, low=float(low), high=float(high))

    def binary(self, name: str, a: Value, b: Value, kind: Kind = "float") -> Value:
        """An elementwise operation with broadcasting. It reads a broadcast operand without expanding it in memory."""
        for spread, other in ((a, b), (b, a)):
            if spread.expanded is not None and other.expanded is None:
                source, shape = spread.expanded
                rank = len(spread.shape)
                if len(other.shape) >= rank and other.shape[len(other.shape) - rank :] == spread.shape:
                    whole = other.shape[: len(other.shape) - rank] + shape
                    if len(whole) <= MAX_RANK:
                        viewed = self.view(other, whole)
                        pair = (source, viewed) if spread is a else (viewed, source)
                        return self.view(self.binary(name, *pair, kind), other.shape)
        a, b = self.real(a), self.real(b)
        shape = np.broadcast_shapes(a.shape, b.shape)
        if a.constant is not None and b.constant is not None:
            return self._folded(name, a, b, shape, kind)
        unchanged = self._unchanged(name, a, b, shape)
        if unchanged is not None:
            return unchanged
        return self.node(name, [self._least(a, b, shape), self._least(b, a, shape)], shape, kind)

    def _least(self, x: Value, other: Value, shape: Shape) -> Value:
        """Replaces a constant of equal elements by one number if the other operand has the result's shape."""
        same = number(x)
        return x if same is None or other.shape != shape else self.full((), same)

    def _unchanged(self, name: str, a: Value, b: Value, shape: Shape) -> Value | None:
        """Simplifies x + 0, x - 0, x * 1 and x / 1 to x."""
        neutral = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0}.get(name)
        pairs = ((a, b),) if name in ("subtract", "divide") else ((a, b), (b, a))
        return next(
            (x for x, other in pairs if neutral is not None and number(other) == neutral and x.shape == shape), None
        )

    def _folded(self, name: str, a: Value, b: Value, shape: Shape, kind: Kind) -> Value:
        function = {
            "add": np.add,
            "subtract": np.subtract,
            "multiply": np.multiply,
            "divide": np.divide,
            "maximum": np.maximum,
            "minimum": np.minimum,
        }[name]
        with np.errstate(all="ignore"):
            result = np.asarray(function(_array(a), _array(b)), dtype=np.float32)
        return (
            self.full(shape, float(result), kind)
            if result.size == 1
            else self.constant(np.broadcast_to(result, shape), kind)
        )

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """Permutes dimensions. Two permutations in a row are merged; if only dimensions of 1 move, the result is a view."""
        x = self.real(x)
        permutation = tuple(permutation)
        shape = tuple(x.shape[axis] for axis in permutation)
        axes = [axis for axis in permutation if x.shape[axis] != 1]
        if axes == sorted(axes) or x.constant is not None:
            if x.constant is not None and x.constant.size > 1:
                return self.constant(x.constant.transpose(permutation), x.kind)
            return self.view(x, shape)
        if x.op is not None and x.op.name == "transpose":
            inner = x.op.attributes["permutation"]
            return self.transpose(x.op.inputs[0], [inner[axis] for axis in permutation])
        return self.node("transpose", [x], shape, x.kind, permutation=permutation)

    def slice(self, x: Value, axis: int, start: int, stop: int) -> Value:
        x = self.real(x)
        if (start, stop) == (0, x.shape[axis]):
            return x
        shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
        if number(x) is not None:
            return self._reshaped(x, shape)
        if x.constant is not None:
            return self.constant(x.constant[(slice(None),) * axis + (slice(start, stop),)], x.kind)
        return self.node("slice", [x], shape, x.kind, offsets=(0,) * axis + (start,) + (0,) * (len(shape) - axis - 1))

    def concatenate(self, xs: Sequence[Value], axis: int) -> Value:
        xs = [self.whole(self.real(x)) for x in xs if x.numel]
        while len(xs) > 1:
            part = xs[:MAX_CONCATENATED]
            shape = list(part[0].shape)
            shape[axis] = sum(x.shape[axis] for x in part)
            xs = [self.node("concatenate", part, shape, part[0].kind, axis=axis), *xs[MAX_CONCATENATED:]]
        return xs[0]

    def pad(self, x: Value, before: Sequence[int], after: Sequence[int]) -> Value:
        """Pads `x` with zeros."""
        x = self.real(x)
        shape = tuple(a + n + b for a, n, b in zip(before, x.shape, after, strict=True))
        return (
            x
            if shape == x.shape
            else self.node("pad", [self.whole(x)], shape, before=tuple(before), after=tuple(after))
        )

    def whole(self, x: Value) -> Value:
        """A constant at its full shape, for nodes that do not broadcast."""
        return x if number(x) is None or x.numel == 1 else self.written(x)

    def written(self, x: Value) -> Value:
        """A constant of equal elements at its full shape."""
        data = np.full(x.shape, number(x), dtype=np.float32)
        return self._known.setdefault(("written", x), Value(x.shape, x.dtype, x.kind, constant=data))

    # ---- products and sums ---------------------------------------------------------------------------------------------------

    def matmul(self, a: Value, b: Value) -> Value:
        """Multiplies a [..., M, K] by b [..., K, N]. A transposed operand is read in the way that copies fewer bytes."""
        a, b = self.whole(self.real(a)), self.whole(self.real(b))
        shape = (*a.shape[:-1], b.shape[-1])
        if a.shape[-1] == 0:
            return self.full(shape, 0.0)
        left, right = _untransposed(self, a), _untransposed(self, b)
        copied = b.numel + math.prod(shape)  # elements that a^T b = (b^T a)^T copies
        if left is not None and (right is not None or copied < a.numel):
            flipped = self.matmul(right, left) if right is not None else self.matmul(_flipped(self, b), left)
            return _flipped(self, flipped)
        if right is not None:
            return self.node("matmul", [a, right], shape, flag=1)
        return self.node("matmul", [a, b], shape, flag=0)

    def sum(self, x: Value, dims: Sequence[int], keep: bool, factor: float = 1.0) -> Value:
        """Sums over some dimensions as products with a vector of `factor`."""
        x = self.real(x)
        rank = len(x.shape)
        dims = sorted(dim % rank for dim in dims) if dims else list(range(rank))
        result = [1 if axis in dims else size for axis, size in enumerate(x.shape)]
        kept = [size for axis, size in enumerate(x.shape) if axis not in dims]
        if dims and dims == list(range(dims[0], dims[-1] + 1)):
            before, across = math.prod(x.shape[: dims[0]]), math.prod(x.shape[dims[0] : dims[-1] + 1])
            after = math.prod(x.shape[dims[-1] + 1 :])
        else:
            x = self.transpose(x, [axis for axis in range(rank) if axis not in dims] + dims)
            before, across, after = (
                math.prod(kept),
                math.prod(result) and math.prod(x.shape) // max(1, math.prod(kept)),
                1,
            )
        if across == 0 or before == 0 or after == 0:
            total = self.full(kept, 0.0)
        elif (
            after == 1 and before == 1 and across > 4096 and across % 64 == 0
        ):  # keeps a vector of that length out of the artifact
            rows = self.matmul(self.view(x, (across // 64, 64)), self.constant(np.ones((64, 1))))
            total = self.sum(self.view(rows, (1, across // 64)), [1], True, factor)
        elif after == 1:
            total = self.matmul(self.view(x, (before, across)), self.constant(np.full((across, 1), factor)))
        else:
            ones = np.broadcast_to(np.float32(factor), (before, 1, across))
            total = self.matmul(self.constant(ones), self.view(x, (before, across, after)))
        return self.view(total, result if keep else kept)

    # ---- kernels -------------------------------------------------------------------------------------------------------------

    def kernel(
        self, name: str, arguments: list[Any], results: Sequence[tuple[Sequence[int], torch.dtype]]
    ) -> list[Value]:
        """Calls a kernel. `arguments` follow the schema's order without the results, which come last."""
        op = Op(name, [a for a in _flat(arguments) if isinstance(a, Value)], arguments=arguments)
        key = (name, tuple(_hashable(arguments)), tuple((tuple(s), d) for s, d in results))
        if key not in self._known:
            op.outputs = [Value(tuple(s), d, KINDS.get(d, "float"), op=op) for s, d in results]
            self._known[key] = op.outputs  # type: ignore[assignment]
            self.ops.append(op)
        return self._known[key]  # type: ignore[return-value]

    def drop_unused(self, results: Sequence[Value]) -> None:
        wanted = {result.base for result in results}
        kept = []
        for op in reversed(self.ops):
            if any(output in wanted for output in op.outputs):
                wanted |= {value.base for value in op.inputs}
                kept.append(op)
        self.ops = kept[::-1]


def number(x: Value) -> float | None:
    """The number that all elements of a constant equal, or None."""
    return float(x.constant) if x.constant is not None and x.constant.size == 1 else None


def float_bits(x: float) -> int:
    """The bits of a number in fp32, as the code of our operators has them."""
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def _array(x: Value) -> np.ndarray:
    assert x.constant is not None
    return x.constant


def _flat(arguments: Sequence[Any]) -> list[Any]:
    return [item for a in arguments for item in (_flat(a) if isinstance(a, list | tuple) else [a])]


def _hashable(arguments: Sequence[Any]) -> list[Any]:
    return [tuple(_hashable(a)) if isinstance(a, list | tuple) else (type(a).__name__, a) for a in arguments]


def _untransposed(tape: Tape, x: Value) -> Value | None:
    """The value of which `x` is the transpose, if that value is closer to the layout in memory."""
    if x.op is None or x.op.name != "transpose":
        return None
    permutation = x.op.attributes["permutation"]
    flipped = (*permutation[:-2], permutation[-1], permutation[-2])
    lies = flipped[-1] == len(flipped) - 1
    return tape.transpose(x.op.inputs[0], flipped) if lies else None


def _flipped(tape: Tape, x: Value) -> Value:
    rank = len(x.shape)
    return tape.transpose(x, [*range(rank - 2), rank - 1, rank - 2])
