# SPDX-License-Identifier: Apache-2.0
"""Elementwise nodes that follow each other run in one operator of bespoke, with what torch gives; others stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.unit.targets.programs import kernels_of, run, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch.program import compile_graph
from bespoke_plugins.targets.executorch.run import _operators

FUSED = "bespoke::elementwise.out"
TOLERANCE = 2e-6  # relative to the largest value
SHAPES = [(256, 64), (128, 129), (1, 16391)]  # a multiple of what a thread takes at a time, and not


def gate(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(g) * u


def gate_backward(
    g: torch.Tensor, u: torch.Tensor, dp: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    s = torch.sigmoid(g)
    silu = g * s
    return silu * u, dp * silu, dp * u * (s + silu * (1 - s))


def gelu_gate(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(g, approximate="tanh") * u


def with_adapter(base: torch.Tensor, up: torch.Tensor, xa: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product lies between two elementwise nodes, and is none."""
    return torch.nn.functional.silu(base + xa @ b.T * 2.0) * up


def around_a_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Both ends are elementwise, but the sum in their middle has to run between them."""
    a = torch.sigmoid(x) * y
    b = a - y
    return torch.tanh(a * b) + b * (a.sum(-1, keepdim=True) * torch.ones_like(a)) * a


def crossing(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two sums of products: each needs a product of what the other begins with, so one of them has to stay in pieces."""
    a, b = torch.sigmoid(x), torch.sigmoid(y)
    return (a * torch.tanh(b @ w)) @ w + b * torch.tanh(a @ w)


def operands(count: int, shape: tuple[int, int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    found = [torch.randn(shape, generator=generator) * 3 for _ in range(count)]
    found[0].view(-1)[:8] = torch.tensor([0.0, -0.0, 1e-4, -0.6, 30.0, -30.0, 200.0, -200.0])
    return found


def check(function: Callable[..., Any], *given: torch.Tensor) -> set[str]:
    """Runs the program; the kernels in it."""
    if not _operators():
        pytest.skip("the device core is not installed")
    data = compile_graph(traced(function, given)).data
    expected = function(*(t.double() for t in given))
    for found, wanted in zip(
        run(data, given)[0], expected if isinstance(expected, tuple) else (expected,), strict=True
    ):
        assert (found - wanted).abs().max() <= TOLERANCE * wanted.abs().max()
    return kernels_of(data)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("function", "count"), [(gate, 2), (gate_backward, 3), (gelu_gate, 2)])
def test_gates_and_their_gradients_are_one_operator(
    function: Callable[..., Any], count: int, shape: tuple[int, int]
) -> None:
    assert FUSED in check(function, *operands(count, shape))


def test_what_is_not_a_number_stays_that() -> None:
    g, u = operands(2, (128, 129))
    g[3, 5] = float("nan")
    (found,) = run(compile_graph(traced(gate, (g, u))).data, (g, u))[0]
    assert found.isnan().sum() == 1
    assert found[3, 5].isnan()


def test_products_between_nodes_are_left_to_xnnpack() -> None:
    base, up = operands(2, (256, 96))
    xa, b = torch.randn(256, 8), torch.randn(96, 8)
    assert FUSED in check(with_adapter, base, up, xa, b)


def test_nodes_with_something_between_them_stay_apart() -> None:
    check(around_a_sum, *operands(2, (128, 129)))


def test_groups_that_wait_for_each_other_are_not_both_put_together() -> None:
    x, y = operands(2, (256, 64))
    assert FUSED in check(crossing, x, y, torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) / 8)


def test_few_or_small_nodes_stay_with_xnnpack() -> None:
    assert FUSED not in check(lambda x, y: x * y + y, *operands(2, (256, 64)))
    assert FUSED not in check(gate, *operands(2, (4, 64)))
