# SPDX-License-Identifier: Apache-2.0
"""Replaces the nodes of a stage by one call of our own operator where rows are few.

A token passes some hundred small nodes: norms, rotations, adapters, sums. A call of an XNNPACK delegate and each of its nodes take
longer than their arithmetic then. The operator goes through loops with strides, so a slice, a transpose or a broadcast operand is a
loop like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from bespoke_plugins.targets.executorch.tape import Op, Value, float_bits
from bespoke_plugins.targets.executorch.workspace import place

OPERATOR = "bespoke::strided.out"
# The order of kernels::Loop in bindings/native/src/kernels/int4.h. The limit on tensors is the operator's.
LOOPS = ("copy", "add", "subtract", "multiply", "divide", "sigmoid", "tanh", "rsqrt", "matmul")
COPIES = ("slice", "transpose", "concatenate")
DIMS, MOST_TENSORS = 4, 64
MOST_ELEMENTS = 1 << 16  # of a node's result: one thread computes it

Strides = tuple[int, ...]


class _Operand(NamedTuple):
    """A value as a loop reads or writes it: the first element, and a stride for each dimension of the loop."""

    value: Value
    first: int
    strides: Strides


class _Loop(NamedTuple):
    operation: str
    dims: tuple[int, ...]
    operands: tuple[_Operand, ...]  # result, a, b


def as_one_call(nodes: Sequence[Op], inputs: Sequence[Value], outputs: Sequence[Value]) -> Op | None:
    """One call that computes the outputs, or None if a node has no loop."""
    sources = list(dict.fromkeys(value.base for value in inputs))
    if len(sources) + len(outputs) >= MOST_TENSORS or not all(map(_fits, nodes)):
        return None
    loops = [loop for op in nodes for loop in _loops(op)]
    if not all(len(loop.dims) == DIMS for loop in loops):
        return None
    code = _code(loops, sources, outputs)
    return Op(OPERATOR, sources, list(outputs), arguments=[sources, code])


def workspace_bytes(op: Op) -> int:
    """Memory of a call, as the operator asks for it."""
    return int(op.arguments[1][0]) * 4


def _fits(op: Op) -> bool:
    values = (*op.inputs, *op.outputs)
    return (
        op.name in (*LOOPS, *COPIES)
        and all(value.dtype is torch.float32 or value.constant is not None for value in values)
        and all(value.constant is None or _number(value) is not None for value in op.inputs)
        and op.outputs[0].numel <= MOST_ELEMENTS
    )


def _loops(op: Op) -> list[_Loop]:
    (result,) = op.outputs
    whole = _contiguous(result)
    if op.name == "matmul":
        return [_product(op)]
    if op.name == "slice":
        (x,) = op.inputs
        strides = _strides(x)
        first = sum(offset * stride for offset, stride in zip(op.attributes["offsets"], strides, strict=True))
        return [_loop("copy", result.shape, _Operand(result, 0, whole), _Operand(x, first, strides))]
    if op.name == "transpose":
        (x,) = op.inputs
        strides = tuple(_strides(x)[axis] for axis in op.attributes["permutation"])
        return [_loop("copy", result.shape, _Operand(result, 0, whole), _Operand(x, 0, strides))]
    if op.name == "concatenate":
        axis, first, loops = op.attributes["axis"], 0, []
        for x in op.inputs:
            loops.append(_loop("copy", x.shape, _Operand(result, first, whole), _Operand(x, 0, _strides(x))))
            first += x.shape[axis] * whole[axis]
        return loops
    read = [_Operand(x, 0, _broadcast(x, len(result.shape))) for x in op.inputs]
    return [_loop(op.name, result.shape, _Operand(result, 0, whole), *read)]


def _product(op: Op) -> _Loop:
    """Dimensions: batch, rows, columns, summands."""
    (a, b), (result,) = op.inputs, op.outputs
    rows, summands, columns = a.shape[-2], a.shape[-1], result.shape[-1]
    batch = math.prod(result.shape[:-2])
    along, across = (1, summands) if op.attributes["flag"] else (columns, 1)
    of_a = _Operand(a, 0, (_batch_stride(a), summands, 0, 1) if _number(a) is None else (0,) * DIMS)
    of_b = _Operand(b, 0, (_batch_stride(b), 0, across, along) if _number(b) is None else (0,) * DIMS)
    of_result = _Operand(result, 0, (rows * columns, columns, 1, 0))
    return _Loop("matmul", (batch, rows, columns, summands), (of_result, of_a, of_b))


def _batch_stride(x: Value) -> int:
    return math.prod(x.shape[-2:]) if math.prod(x.shape[:-2]) > 1 else 0


def _number(x: Value) -> float | None:
    """The number that all elements of a constant equal, also where it is written out, or None."""
    if x.constant is None or not x.constant.size or not (x.constant == x.constant.flat[0]).all():
        return None
    return float(x.constant.flat[0])


def _contiguous(x: Value) -> Strides:
    return tuple(math.prod(x.shape[axis + 1 :]) for axis in range(len(x.shape)))


def _strides(x: Value) -> Strides:
    """Strides of an operand: all 0 for a constant whose elements are equal, of which there is one."""
    return _contiguous(x) if _number(x) is None else (0,) * len(x.shape)


def _broadcast(x: Value, rank: int) -> Strides:
    """Strides of an operand in a result of so many dimensions, 0 where it is repeated."""
    own = [0 if size == 1 else stride for size, stride in zip(x.shape, _strides(x), strict=True)]
    return (*(0,) * (rank - len(own)), *own)


def _loop(operation: str, shape: Sequence[int], *operands: _Operand) -> _Loop:
    """A loop over as few dimensions as the strides allow, filled up to DIMS with dimensions of 1."""
    kept: list[tuple[int, list[int]]] = []  # size and strides, the last dimension first
    for axis in reversed(range(len(shape))):
        size, strides = shape[axis], [operand.strides[axis] for operand in operands]
        if size == 1:
            continue
        if kept and all(stride == kept[-1][0] * inner for stride, inner in zip(strides, kept[-1][1], strict=True)):
            kept[-1] = (kept[-1][0] * size, kept[-1][1])
        else:
            kept.append((size, strides))
    kept += [(1, [0] * len(operands))] * (DIMS - len(kept))
    kept.reverse()
    read = [
        operand._replace(strides=tuple(strides[place] for _, strides in kept)) for place, operand in enumerate(operands)
    ]
    return _Loop(operation, tuple(size for size, _ in kept), tuple(read))


def _code(loops: Sequence[_Loop], inputs: Sequence[Value], outputs: Sequence[Value]) -> list[int]:
    """The operator's code: see StridedCode in bindings/native/src/engines/executorch/operators.cpp."""
    tensors = {value: place for place, value in enumerate((*inputs, *outputs))}
    constants = (_number(one.value) for loop in loops for one in loop.operands)
    numbers = list(dict.fromkeys(one for one in constants if one is not None))
    size, within = _places(loops, tensors, len(numbers))

    def fields(operand: _Operand) -> list[int]:
        base = operand.value.base
        if (constant := _number(base)) is not None:
            tensor, start = len(tensors), numbers.index(constant)
        else:
            tensor, start = (tensors[base], 0) if base in tensors else (len(tensors), within[base])
        return [tensor, start + operand.first, *operand.strides]

    code = [size, len(numbers), *map(float_bits, numbers)]
    for loop in loops:
        result, a, *b = loop.operands
        code += [LOOPS.index(loop.operation), *loop.dims, *fields(result), *fields(a), *fields(b[0] if b else a)]
    return code


def _places(loops: Sequence[_Loop], tensors: dict[Value, int], numbers: int) -> tuple[int, dict[Value, int]]:
    """Floats of the workspace, and where values lie in it that are neither inputs nor outputs. It begins with the numbers."""
    lives: dict[Value, list[int]] = {}
    for step, loop in enumerate(loops):
        for operand in loop.operands:
            base = operand.value.base
            if base not in tensors and base.constant is None:
                lives.setdefault(base, [step, step])[1] = step
    total, offsets = place((value.nbytes, first, last) for value, (first, last) in lives.items())
    return numbers + total // 4, {value: numbers + offset // 4 for value, offset in zip(lives, offsets, strict=True)}
