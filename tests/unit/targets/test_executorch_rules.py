# SPDX-License-Identifier: Apache-2.0
"""Target `executorch`: what each operator becomes gives what torch gives, and where it runs is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from bespoke.errors import Unsupported
from tests.unit.targets.programs import kernels_of, read, run, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch import program
from bespoke_plugins.targets.executorch.program import compile_graph
from bespoke_plugins.targets.executorch.strided import OPERATOR
from bespoke_plugins.targets.executorch.vendor import load_executorch

aten = torch.ops.aten
TOLERANCE = 2e-6  # relative to the largest value
F = Callable[..., Any]


def x(seed: int = 0, *shape: int) -> torch.Tensor:
    return torch.randn(shape or (3, 4, 6), generator=torch.Generator().manual_seed(seed))


def tokens(seed: int = 0, count: int = 6, high: int = 9) -> torch.Tensor:
    return torch.randint(high, (count,), generator=torch.Generator().manual_seed(seed))


def softmaxed_under_a_mask(a: torch.Tensor, start: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
    i = start + torch.arange(3)[:, None]
    j = torch.arange(6)[None, :]
    visible = ((j <= i) & (j > i - window)).repeat_interleave(4, 0)
    return torch.softmax(torch.where(visible, a.view(2, 12, 6), -math.inf), -1)


# name -> (function, operands)
IN_DELEGATES: dict[str, tuple[F, tuple[torch.Tensor, ...]]] = {
    "arithmetic": (lambda a, b: (a + 2 * b - a / b, 1 - a, torch.maximum(a, b), torch.minimum(a, b)), (x(0), x(1))),
    "alpha": (lambda a, b: torch.sub(a, b, alpha=3), (x(0), x(1))),
    "broadcast": (
        lambda a, b, c: a * b[:, None] + c,
        (x(0), x(1, 4, 6)[:, 0:1].clone().view(4, 1)[:, 0].clone(), x(2, 6)),
    ),
    "unary": (
        lambda a: (
            -a,
            a.exp(),
            a.abs().log(),
            a.abs().sqrt(),
            a.abs().rsqrt(),
            a.sigmoid(),
            a.tanh(),
            a.floor(),
            a.ceil(),
        ),
        (x(),),
    ),
    "trigonometry": (lambda a: (a.sin(), a.cos()), (x(),)),
    "powers": (lambda a: (a**2, a**3, a.abs() ** 0.5, a.abs() ** -0.5, aten.reciprocal(a), (a + 3) ** -1.0), (x(),)),
    "clamps": (lambda a: (a.clamp(-0.5, 0.5), a.clamp(min=0.1), a.clamp(max=0.1), a.relu()), (x(),)),
    "activations": (lambda a: (torch.nn.functional.silu(a), torch.nn.functional.gelu(a)), (x(),)),
    "backwards": (
        lambda g, y: (
            aten.sigmoid_backward(g, y),
            aten.tanh_backward(g, y),
            aten._softmax_backward_data(g, y, -1, torch.float32),
            aten.slice_backward(g, [3, 9, 6], 1, 2, 6, 1),
            aten.select_backward(g[0], [5, 4, 6], 0, 3),
        ),
        (x(0), x(1)),
    ),
    "products": (
        lambda a, b, c: (
            a @ b,
            b.t() @ a.t(),
            a.t() @ c,
            c.t() @ a,
            c @ b.t().contiguous().t(),
            0.5 * (a @ b),
            torch.addmm(c, a, b[:, :4]),
        ),
        (x(0, 5, 4), x(1, 4, 7), x(2, 5, 4)),
    ),
    "batched products": (
        lambda a, b: (
            torch.bmm(a, b.transpose(1, 2)),
            torch.bmm(a.transpose(1, 2), b),
            torch.bmm(a.transpose(0, 1), b.permute(1, 2, 0)),
            0.3 * torch.bmm(a, b.transpose(1, 2)),
            torch.bmm(a[:, :1], b.transpose(1, 2)) * 0.3,
        ),
        (x(0), x(1)),
    ),
    "sums": (
        lambda a: (
            a.sum(),
            a.mean(),
            a.sum(-1),
            a.mean(-1, keepdim=True),
            a.sum(0),
            a.sum(1, keepdim=True),
            a.sum((0, 2)),
            a.mean((0, 1)),
        ),
        (x(),),
    ),
    "a long sum": (lambda a: a.sum(), (x(0, 128, 80),)),
    "shapes": (
        lambda a: (
            a.view(12, 6) * 2,
            a.transpose(0, 2) + 1,
            a.permute(2, 0, 1).reshape(6, 12) + 1,
            a[:, 1:3] * a[:, 2:4],
            a[1] + 1,
            torch.cat([a, 2 * a, a, a, a, -a], 1),
            torch.stack([a[0], 2 * a[1]], 1),
            [piece + 1 for piece in a.split(2, 1)][1],
            a.unsqueeze(1) * a.unsqueeze(2),
            (2 * a).squeeze(0),
            a[:, :, None].expand(3, 4, 5, 6) * 2,
        ),
        (x(),),
    ),
    "an expanded value by itself": (lambda a: ((2 * a)[:, None].expand(4, 3, 6).reshape(12, 6),), (x(0, 4, 6),)),
    "softmax": (lambda a: torch.softmax(a, -1), (30 * x(),)),
    "constants": (lambda a: (torch.arange(6) * a, a + torch.full_like(a, 0.5), torch.ones(3, 1, 1) - a), (x(),)),
}
CONVERTED = {"aten::_to_copy.out"}  # whole numbers become floats and back
WITH_KERNELS: dict[str, tuple[F, tuple[torch.Tensor, ...], set[str]]] = {
    "attention mask": (softmaxed_under_a_mask, (x(0, 2, 12, 6), torch.tensor(2), torch.tensor(3)), CONVERTED),
    "unlimited window": (
        softmaxed_under_a_mask,
        (100 * x(0, 2, 12, 6), torch.tensor(3), torch.tensor(2**40)),
        CONVERTED,
    ),
    "comparisons": (
        lambda a, b: tuple(
            c.to(torch.float32) for c in (a <= b, a < b, a >= b, a > b, a == b, ~(a == b), (a <= 3) | (b > 5))
        ),
        (tokens(0), tokens(1)),
        CONVERTED,
    ),
    "choices": (
        lambda a, b, u, v: (torch.where(a > b, a + 5, b), torch.where(a == b, u, v), torch.where(a < b, u, 0.0)),
        (tokens(0), tokens(1), x(0, 6), x(1, 6)),
        CONVERTED,
    ),
    "whole numbers": (
        lambda a, b: (a + b, 2 * a, a.clamp(2, 5), a - 200_000),
        (tokens(0, 6, 2**23), tokens(1, 6, 2**23)),
        CONVERTED,
    ),
    "conversions": (
        lambda a, u: (a.to(torch.float32), u.to(torch.int64), torch.zeros_like(u).to(torch.int64)),
        (tokens(), 9 * x(0, 6)),
        CONVERTED,
    ),
    "gather": (lambda u, a: u.gather(1, a[:, None]), (x(0, 6, 9), tokens()), {"aten::gather.out"}),
    "largest": (lambda u: tuple(u.max(-1)), (x(),), {"aten::max.dim_max"}),
    "comparison of reals": (
        lambda u, v: torch.where(u > v, u, v),
        (x(0), x(1)),
        {"aten::gt.Tensor_out", "aten::_to_copy.out"},
    ),
    "expm1": (lambda u: torch.expm1(u * 0.5), (x(),), {"aten::expm1.out"}),
    "half": (lambda s, u: s.to(torch.float32) * u, (x(0).to(torch.float16), x(1)), CONVERTED),
}


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    load_executorch()


def check(name: str, function: F, operands: tuple[torch.Tensor, ...]) -> set[str]:
    """Compiles, runs twice with other memory, compares; which operators are called outside delegates."""
    graph = traced(function, operands, name.replace(" ", "_"))
    data = compile_graph(graph).data
    calls = [operands, [operand.clone() for operand in operands]]
    for results in run(data, *calls):
        expected = graph.module(*operands)
        assert [(r.shape, r.dtype) for r in results] == [(e.shape, e.dtype) for e in expected]
        for number, (result, right) in enumerate(zip(results, expected, strict=True)):
            allowed = TOLERANCE * max(1.0, *right.double().abs().flatten().tolist(), 1.0)
            assert ((result.double() - right.double()).abs() <= allowed).all(), f"result {number}"
    return kernels_of(data) - {"executorch_prim::et_view.default"}


@pytest.mark.parametrize("name", IN_DELEGATES)
def test_float_arithmetic_runs_in_delegates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, operands = IN_DELEGATES[name]
    assert check(name, function, operands) <= {OPERATOR}  # few rows are one call, and compute the same
    monkeypatch.setattr(program, "FEW_ROWS", 0)
    assert check(name, function, operands) == set()


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_what_else_is_called_is_known(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, operands, kernels = WITH_KERNELS[name]
    assert check(name, function, operands) - {OPERATOR} == kernels
    monkeypatch.setattr(program, "FEW_ROWS", 0)
    assert check(name, function, operands) == kernels


def test_what_a_mask_hides_has_no_weight_at_all() -> None:
    function, operands, _ = WITH_KERNELS["attention mask"]
    scores, start, window = operands
    ((result,),) = run(
        compile_graph(traced(function, (1000 * scores, start, window))).data, (1000 * scores, start, window)
    )
    positions = start + torch.arange(3).repeat_interleave(4)[:, None]
    keys = torch.arange(6)[None]
    hidden = ~((keys <= positions) & (keys > positions - window))
    assert hidden.any()
    assert (result[:, hidden] == 0).all()
    assert result.sum(-1).allclose(torch.ones(2, 12))


RESULTS: dict[str, F] = {
    "an operand": lambda a, b: (a,),
    "an operand in another shape": lambda a, b: (a.reshape(-1),),
    "one value twice": lambda a, b: ((c := a + b), c),
    "a value and a view of it": lambda a, b: ((c := a + b), c.view(-1)),
    "zeros": lambda a, b: (torch.zeros(3, 3), a + b),
    "a constant": lambda a, b: (torch.arange(4, dtype=torch.float32), a),
    "nothing in it": lambda a, b: (a[:0], (a[:0] + 1).sum(), a + b),
    "no operand": lambda a, b: (torch.ones(2),),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_memory_of_its_own(name: str) -> None:
    check(name, RESULTS[name], (x(0), x(1)))


def test_views_take_no_memory_and_no_call() -> None:
    graph = traced(lambda a: ((2 * a).view(12, 6) @ (3 * a).view(6, 12)).view(3, 4, 12).transpose(0, 1), (x(),))
    compiled = compile_graph(graph)
    (stage,) = compiled.stages
    assert [node.name for node in stage.nodes] == ["multiply", "multiply", "matmul", "transpose"]
    assert compiled.planned_bytes == 0
    assert sum(read(compiled.data).non_const_buffer_sizes) == 0


@pytest.mark.parametrize(
    ("function", "operands", "operator"),
    [
        (lambda a: aten.special_bessel_j0(a), (x(),), "aten.special_bessel_j0"),
        (lambda a: torch.fft.rfft(a).real, (x(),), "aten._fft_r2c"),
    ],
)
def test_what_cannot_be_compiled_is_named(function: F, operands: tuple[torch.Tensor, ...], operator: str) -> None:
    with pytest.raises(Unsupported, match=rf"Graph 'wanted', operator {operator}.*operator without a kernel"):
        compile_graph(traced(function, operands, "wanted"))
