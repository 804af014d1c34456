# SPDX-License-Identifier: Apache-2.0
"""Attention is compiled to our own operator, and nothing else is taken for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bespoke.contracts import Graph
from bespoke.core import find
from bespoke.model import layers
from tests.unit.targets.programs import kernels_of, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch import vendor
from bespoke_plugins.targets.executorch.attention import OPERATOR, AttentionSizes, attention_sizes
from bespoke_plugins.targets.executorch.program import compile_graph
from bespoke_plugins.targets.executorch.run import open_program

pytestmark = pytest.mark.xdist_group("executorch")
D = 8


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    vendor.load_executorch()


def operands(rows: int, keys: int, heads: int, kv_heads: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    shapes = ((rows, heads * D), (keys, kv_heads * D), (keys, kv_heads * D))
    return [*(torch.randn(shape, generator=generator) for shape in shapes), torch.tensor(5), torch.tensor(9)]


def attention(heads: int, kv_heads: int, scale: float = 0.25) -> Callable[..., torch.Tensor]:
    def attention_tile(*tensors: torch.Tensor) -> torch.Tensor:
        return layers.attention_tile(*tensors, heads=heads, kv_heads=kv_heads, scale=scale)

    return attention_tile


def capped(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: torch.Tensor, window: torch.Tensor
) -> torch.Tensor:
    """Attention with scores below 30, as Gemma 2 has it."""
    qk, kk, vk = (layers._by_kv_head(x, 2, D) for x in (q, k, v))
    scores = 30 * torch.tanh(torch.bmm(qk, kk.transpose(1, 2)) * 0.25 / 30)
    visible = layers._visible(start, window, q.shape[0], k.shape[0])
    p = torch.softmax(torch.where(visible, scores, -math.inf), -1)
    return torch.bmm(p, vk).transpose(0, 1).reshape(q.shape)


@pytest.mark.parametrize(
    ("rows", "heads", "kv_heads"), [(1, 4, 2), (1, 3, 3), (6, 4, 2), (6, 3, 3), (6, 4, 1), (20, 2, 2)]
)
def test_the_sizes_are_read_off_the_graph(rows: int, heads: int, kv_heads: int) -> None:
    graph = traced(attention(heads, kv_heads), operands(rows, 40, heads, kv_heads))
    assert attention_sizes(graph) == AttentionSizes(heads, kv_heads, 0.25)


def test_what_is_nearly_attention_is_left_to_xnnpack() -> None:
    graph = traced(capped, operands(6, 40, 2, 2))
    assert attention_sizes(graph) is None
    assert OPERATOR not in kernels_of(compile_graph(graph).data)


@pytest.mark.skipif(find().path is None, reason="the device core, which has our operators, is not installed")
@pytest.mark.parametrize(("rows", "heads", "kv_heads"), [(1, 4, 2), (6, 3, 3), (20, 4, 1)])
def test_the_program_computes_what_was_traced(rows: int, heads: int, kv_heads: int, tmp_path: Path) -> None:
    given = operands(rows, 40, heads, kv_heads)
    graph: Graph = traced(attention(heads, kv_heads), given)
    compiled = compile_graph(graph)
    assert kernels_of(compiled.data) == {OPERATOR}
    (tmp_path / "attention.pte").write_bytes(compiled.data)
    program = open_program(tmp_path / "attention.pte")
    assert program is not None
    (found,) = program(*given)
    (expected,) = graph.module(*[x.double() if x.is_floating_point() else x for x in given])
    assert (found - expected).abs().max() <= 1e-6
