# SPDX-License-Identifier: Apache-2.0
"""An adapter's share is added within the operator of its product, and only where nothing else reads either of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke.core import find
from bespoke.model import layers
from bespoke.model.quantize import quantize
from bespoke.ops import QuantizedWeight, product
from tests.unit.targets.programs import kernels_of, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch import vendor
from bespoke_plugins.targets.executorch.lora import MOST_RANK
from bespoke_plugins.targets.executorch.program import compile_graph
from bespoke_plugins.targets.executorch.run import open_program

pytestmark = pytest.mark.xdist_group("executorch")
ROWS, OUT, IN = 5, 40, 64
Function = Callable[..., Any]
FORWARD, BACKWARD = "bespoke::linear_int4_lora.out", "bespoke::linear_int4_transposed_lora.out"


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    vendor.load_executorch()


def operands(rank: int) -> list[torch.Tensor]:
    """x, codes, scales, A, B and dy of a linear."""
    generator = torch.Generator().manual_seed(rank)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    codes, scales = quantize("w", random(OUT, IN).numpy())
    return [
        random(ROWS, IN),
        torch.from_numpy(codes),
        torch.from_numpy(scales),
        random(rank, IN),
        random(OUT, rank),
        random(ROWS, OUT),
    ]


def forward(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor
) -> torch.Tensor:
    return layers.lora_linear(x, QuantizedWeight(codes, scales, IN), None, a, b, scale=0.5)


def backward(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    return layers.lora_linear_backward(x, QuantizedWeight(codes, scales, IN), a, b, dy, scale=0.5)


def read_twice(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    y = product(x, QuantizedWeight(codes, scales, IN))
    return y + x @ a.t() @ b.t(), y * 2


def a_result(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    y = product(x, QuantizedWeight(codes, scales, IN))
    return y + x @ a.t() @ b.t(), y


def share_read_twice(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    share = x @ a.t() @ b.t()
    return product(x, QuantizedWeight(codes, scales, IN)) + share, share * 2


def one_share_for_all(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor
) -> torch.Tensor:
    return product(x, QuantizedWeight(codes, scales, IN)) + x[:1] @ a.t() @ b.t()


@pytest.mark.skipif(find().path is None, reason="the device core, which has our operators, is not installed")
@pytest.mark.parametrize(("function", "operator"), [(forward, FORWARD), (backward, BACKWARD)])
@pytest.mark.parametrize("rank", [1, 8, MOST_RANK])
def test_a_linear_with_an_adapter_is_one_operator(function: Function, operator: str, rank: int, tmp_path: Path) -> None:
    given = operands(rank)
    graph = traced(function, given)
    compiled = compile_graph(graph)
    assert [name for name in kernels_of(compiled.data) if "int4" in name] == [operator]
    (tmp_path / "lora.pte").write_bytes(compiled.data)
    program = open_program(tmp_path / "lora.pte")
    assert program is not None
    found, expected = program(*given), graph.module(*given)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("function", [read_twice, a_result, share_read_twice, one_share_for_all])
def test_what_another_reader_needs_or_is_broadcast_stays(function: Function) -> None:
    kernels = kernels_of(compile_graph(traced(function, operands(8))).data)
    assert "bespoke::linear_int4.out" in kernels
    assert FORWARD not in kernels


def test_a_rank_that_the_operator_does_not_take_stays_with_xnnpack() -> None:
    kernels = kernels_of(compile_graph(traced(forward, operands(MOST_RANK + 1))).data)
    assert "bespoke::linear_int4.out" in kernels
