# SPDX-License-Identifier: Apache-2.0
"""Calls of each operator of the table, with their operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bespoke.graph.trace import Graph
from bespoke.model.quantize import quantize
from tests.unit.targets.programs import traced

aten, ours = torch.ops.aten, torch.ops.bespoke
LIMIT = 2**40  # "unlimited" of a window: more than 32 bits


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def positive(*shape: int) -> torch.Tensor:
    return random(*shape).abs() + 0.1


X, Y, ROW, CUBE = random(5, 6), random(5, 6) + 0.3, random(6), random(2, 3, 4)
NUMBERS = torch.tensor([[3, 9, LIMIT], [0, 9, 5]])

# Operator -> calls of it, each with its operands.
CASES: dict[str, list[tuple[Callable[..., Any], list[torch.Tensor]]]] = {
    "aten._softmax.default": [
        (lambda x: aten._softmax(x, -1, False), [CUBE]),
        (lambda x: aten._softmax(x, 1, False), [50 * CUBE]),
    ],
    "aten._softmax_backward_data.default": [
        (lambda g, y: aten._softmax_backward_data(g, torch.softmax(y, -1), -1, torch.float32), [CUBE, random(2, 3, 4)])
    ],
    "aten._to_copy.default": [
        (lambda x: aten._to_copy(x, dtype=torch.int64), [torch.tensor([0.0, 3.0, 7.0])]),
        (lambda x: aten._to_copy(aten.gt.Tensor(x, x - x), dtype=torch.float32), [X]),
    ],
    "aten._unsafe_view.default": [(lambda x: aten._unsafe_view(x, [3, 10]), [X])],
    "aten.abs.default": [(aten.abs, [X])],
    "aten.add.Tensor": [
        (aten.add.Tensor, [X, ROW]),
        (lambda x, y: aten.add.Tensor(x, y, alpha=0.5), [X, Y]),
        (lambda x: aten.add.Tensor(x, 2.5), [X]),
    ],
    "aten.arange.default": [(lambda x: aten.arange(6, dtype=torch.int64) + x, [torch.tensor(4)])],
    "aten.bitwise_and.Tensor": [
        (lambda x, y: aten._to_copy(aten.bitwise_and.Tensor(x.gt(y), y.le(x - x)), dtype=torch.float32), [X, Y]),
    ],
    "aten.bmm.default": [(aten.bmm, [random(2, 3, 4), random(2, 4, 5)])],
    "aten.cat.default": [(lambda x, y: aten.cat([x, y], 1), [X, Y]), (lambda x: aten.cat([x]), [X])],
    "aten.clamp.default": [(lambda x: aten.clamp(x, None, 0.5), [X]), (lambda x: aten.clamp(x, min=-0.5), [X])],
    "aten.clone.default": [(lambda x: aten.clone(aten.t(x)), [X])],
    "aten.div.Scalar": [(lambda x: aten.div.Scalar(x, 6), [X])],
    "aten.div.Tensor": [(aten.div.Tensor, [X, positive(5, 6)]), (lambda x: aten.div.Tensor(x, 3), [X])],
    "aten.eq.Tensor": [
        (lambda x, y: aten._to_copy(aten.eq.Tensor(x, y), dtype=torch.float32), [NUMBERS, NUMBERS.flip(0)])
    ],
    "aten.exp.default": [(aten.exp, [X])],
    "aten.expand.default": [
        (lambda x: aten.clone(aten.expand(x, [4, -1, 6])), [random(5, 6)]),
        (lambda x: aten.expand(x, [5, 6]), [random(5, 1)]),
    ],
    "aten.expm1.default": [(aten.expm1, [torch.tensor([1e-7, -1e-4, 0.0, 3.0])])],
    "aten.gt.Tensor": [
        (lambda x, y: aten._to_copy(aten.gt.Tensor(x, y), dtype=torch.float32), [NUMBERS, NUMBERS.flip(0)])
    ],
    "aten.le.Tensor": [
        (lambda x, y: aten._to_copy(aten.le.Tensor(x, y), dtype=torch.float32), [NUMBERS, torch.tensor(LIMIT - 1)])
    ],
    "aten.log.default": [(aten.log, [positive(5, 6)])],
    "aten.maximum.default": [(aten.maximum, [X, Y])],
    "aten.mean.default": [(aten.mean, [X])],
    "aten.mean.dim": [(lambda x: aten.mean(x, [-1], True), [X]), (lambda x: aten.mean(x, [0]), [X])],
    "aten.mm.default": [(aten.mm, [X, random(6, 3)]), (lambda x, y: aten.mm(aten.t(x), y), [X, Y])],
    "aten.mul.Scalar": [(lambda x: aten.mul.Scalar(x, -0.3), [X])],
    "aten.mul.Tensor": [(aten.mul.Tensor, [X, ROW]), (lambda x: aten.mul.Tensor(x, 1.7), [X])],
    "aten.neg.default": [(aten.neg, [X])],
    "aten.permute.default": [(lambda x: aten.clone(aten.permute(x, [2, 0, 1])), [CUBE])],
    "aten.pow.Tensor_Scalar": [(lambda x: aten.pow(x, 2), [X]), (lambda x: aten.pow(x, 3), [X])],
    "aten.reciprocal.default": [(aten.reciprocal, [positive(5, 6)])],
    "aten.rsqrt.default": [(aten.rsqrt, [positive(5, 6)])],
    "aten.rsub.Scalar": [(lambda x: aten.rsub(x, 1), [X]), (lambda x: aten.rsub(x, 1, 2), [X])],
    "aten.scalar_tensor.default": [(lambda x: x * aten.scalar_tensor(0.25, dtype=torch.float32), [X])],
    "aten.select.int": [(lambda x: aten.select(x, 1, 2), [CUBE]), (lambda x: aten.select(x, 0, 0), [CUBE])],
    "aten.sigmoid.default": [(aten.sigmoid, [4 * X])],
    "aten.sigmoid_backward.default": [(lambda g, y: aten.sigmoid_backward(g, torch.sigmoid(y)), [X, Y])],
    "aten.sign.default": [(aten.sign, [torch.tensor([-2.0, 0.0, 3.0])])],
    "aten.silu.default": [(aten.silu, [4 * X])],
    "aten.slice.Tensor": [
        (lambda x: aten.slice(x, 1, 1, 4), [X]),
        (lambda x: aten.slice(x, 0, 2, 2**63 - 1), [X]),
        (lambda x: aten.slice(x, 1, 0, 6, 2), [X]),
    ],
    "aten.slice_backward.default": [(lambda g: aten.slice_backward(g, [5, 9], 1, 2, 8, 1), [X])],
    "aten.split.Tensor": [(lambda x: tuple(part * 2 for part in aten.split(x, 4, 1)), [X])],
    "aten.sqrt.default": [(aten.sqrt, [positive(5, 6)])],
    "aten.squeeze.dim": [(lambda x: aten.squeeze(x, 1), [random(5, 1)])],
    "aten.stack.default": [(lambda x, y: aten.stack([x, y], 1), [X, Y])],
    "aten.sub.Tensor": [
        (aten.sub.Tensor, [X, ROW]),
        (lambda x, y: aten.sub.Tensor(x, y, alpha=3), [X, Y]),
        (aten.sub.Tensor, [NUMBERS, torch.tensor(7)]),
    ],
    "aten.sum.default": [(aten.sum, [X])],
    "aten.sum.dim_IntList": [(lambda x: aten.sum(x, [0], True), [X]), (lambda x: aten.sum(x, [1, 2]), [CUBE])],
    "aten.t.default": [(lambda x: aten.t(x), [X])],
    "aten.tanh.default": [(aten.tanh, [X])],
    "aten.tanh_backward.default": [(lambda g, y: aten.tanh_backward(g, torch.tanh(y)), [X, Y])],
    "aten.transpose.int": [(lambda x: aten.clone(aten.transpose(x, 0, 2)), [CUBE])],
    "aten.unsqueeze.default": [(lambda x: aten.unsqueeze(x, 1), [X])],
    "aten.view.default": [(lambda x: aten.view(x, [30]), [X]), (lambda x: aten.view(x, [2, -1]), [random(4, 6)])],
    "aten.where.self": [
        (lambda x, y: aten.where(aten.gt.Tensor(x, y), x, aten.scalar_tensor(-1e9, dtype=torch.float32)), [X, Y])
    ],
    "aten.zeros.default": [(lambda x: aten.zeros([5, 6], dtype=torch.float32) + x, [X])],
    "aten.zeros_like.default": [(lambda x: aten.zeros_like(x), [X])],
}


def graph_of(function: Callable[..., Any], operands: list[torch.Tensor]) -> Graph:
    return traced(lambda *given: function(*given), operands, "one_operator")


def weight(out: int, columns: int) -> list[torch.Tensor]:
    codes, scales = quantize("weight", random(out, columns).numpy())
    return [torch.from_numpy(codes), torch.from_numpy(scales)]


W = weight(40, 90)  # three groups, the last one with six columns of padding
assert {*W[1].sign().flatten().tolist()} == {-1, 1}  # scales of both signs
W[1][5, 1] = 0
TOKENS, START = torch.tensor([0, 7, 39, 7]), torch.tensor(32)
STATE = [random(5), positive(5), random(5), torch.tensor([3, 1, 4, 1, 5])]
HEAD = [random(5, 90), *W, torch.tensor([[100, 139, 5, 107, 140]]), torch.tensor(100), *STATE]

INT4: dict[str, list[tuple[Callable[..., Any], list[torch.Tensor]]]] = {
    "linear_int4": [
        (lambda x, c, s: ours.linear_int4(x, c, s, None, 90), [random(5, 90), *W]),
        (lambda x, c, s, start: ours.linear_int4(x, c, s, start, 32), [random(5, 32), *W, START]),
        (lambda x, c, s, start: ours.linear_int4(x, c, s, start, 58), [random(5, 58), *W, START]),
    ],
    "linear_int4_transposed": [
        (lambda g, c, s: ours.linear_int4_transposed(g, c, s, None, 90), [random(5, 40), *W]),
        (lambda g, c, s, start: ours.linear_int4_transposed(g, c, s, start, 58), [random(5, 40), *W, START]),
    ],
    "embedding_int4": [(lambda t, c, s: ours.embedding_int4(t, c, s, 90), [TOKENS, *W])],
    "head_chunk_int4": [(ours.head_chunk_int4, HEAD)],
    "head_chunk_gradient_int4": [(ours.head_chunk_gradient_int4, [*HEAD, random(5, 90)])],
}
