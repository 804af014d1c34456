# SPDX-License-Identifier: Apache-2.0
"""Each record of the table, on its own, held against torch; and no record that nothing here holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke import plugins
from bespoke.errors import Unsupported
from bespoke.graph.trace import Graph
from bespoke_plugins.targets.mlx.vendor import load_mlx
from tests.apple.mlx.graphs import computed
from tests.apple.mlx.operators import CASES, INT4, X, aten, graph_of

load_mlx()

from bespoke_plugins.targets.mlx.int4 import int4_operators  # noqa: E402
from bespoke_plugins.targets.mlx.operators import OPERATORS  # noqa: E402


def operators_of(graph: Graph) -> set[str]:
    return {str(node.target) for node in graph.module.graph.nodes if node.op == "call_function"}


def compare(graph: Graph, operands: list[torch.Tensor], folder: Path, tolerance: float = 1e-6, **options: Any) -> None:
    expected = graph.module(*operands)
    got = computed(graph, folder, operands, **options)
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert float((one.double() - other.double()).abs().max()) <= tolerance * max(
            1.0, float(other.double().abs().max())
        )


@pytest.mark.parametrize("operator", sorted(CASES))
def test_an_operator_computes_what_torch_does(operator: str, tmp_path: Path) -> None:
    for function, operands in CASES[operator]:
        graph = graph_of(function, operands)
        assert operator in operators_of(graph)
        compare(graph, operands, tmp_path)


def test_every_record_of_the_table_is_held() -> None:
    assert sorted(CASES) == sorted(OPERATORS)
    assert {name.split(".")[1] for name in int4_operators("decode")} == set(INT4)
    assert int4_operators("decode").keys() == int4_operators("fused").keys()


# ---- int4 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["decode", "fused"])
@pytest.mark.parametrize("operator", sorted(INT4))
def test_an_int4_operator_computes_what_torch_does(operator: str, form: str, tmp_path: Path) -> None:
    for function, operands in INT4[operator]:
        compare(graph_of(function, operands), operands, tmp_path, 1e-5, int4=form)


# ---- what the target does not have -------------------------------------------------------------------------------------------


def test_an_operator_without_a_record_is_named(tmp_path: Path) -> None:
    graph = graph_of(lambda x: aten.special_bessel_j0(x), [X])
    target = plugins.get("target", "mlx")
    with pytest.raises(Unsupported) as caught:
        target.lower(graph, tmp_path, target.Options())
    assert caught.value.subject == "Graph 'one_operator', operator aten.special_bessel_j0.default"
    assert caught.value.got == "an operator that the target has no record of"
    assert "aten.add.Tensor" in caught.value.expected
    assert "choose another target" in caught.value.next_step


def test_a_call_that_mlx_cannot_make_is_named(tmp_path: Path) -> None:
    graph = graph_of(lambda g: aten.slice_backward(g, [5, 12], 1, 0, 12, 2), [X])
    target = plugins.get("target", "mlx")
    with pytest.raises(Unsupported, match=r"operator aten\.slice_backward\.default.*a step between the columns"):
        target.lower(graph, tmp_path, target.Options())
