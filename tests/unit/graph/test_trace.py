# SPDX-License-Identifier: Apache-2.0
"""A graph is what was computed, not what it was called."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from bespoke.errors import GraphError
from bespoke.graph.trace import Graph, TensorSpec, Tracer
from bespoke.graph.tree import flatten
from bespoke.ops import QuantizedWeight, product


def trace(tracer: Tracer, function: Callable[..., Any], *trees: Any, **static: Any) -> Graph:
    leaves, form = flatten(trees)
    return tracer.trace(function, leaves, form, static)[0]


def like(*shape: int, dtype: Any = "float32") -> TensorSpec:
    return TensorSpec("", shape, dtype)


def named_alike(kind: str) -> Callable[..., torch.Tensor]:
    """Functions of one name and shape."""
    if kind == "sum":

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y
    else:

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    return step


def test_two_functions_of_one_name_and_shape_give_two_graphs() -> None:
    tracer = Tracer()
    graphs = [trace(tracer, named_alike(kind), like(3), like(3)) for kind in ("sum", "difference")]
    assert {graph.name for graph in graphs} == {"step"}
    assert len({graph.key for graph in graphs}) == 2
    assert len(tracer.graphs) == 2
    x, y = torch.tensor([1.0, 2, 3]), torch.tensor([5.0, 5, 5])
    assert [graph.module(x, y)[0].tolist() for graph in graphs] == [[6, 7, 8], [-4, -3, -2]]


def test_one_computation_under_two_names_is_one_graph() -> None:
    def plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    tracer = Tracer()
    first, second = trace(tracer, plus, like(3), like(3)), trace(tracer, named_alike("sum"), like(3), like(3))
    assert first is second
    assert list(tracer.graphs) == [first.key]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x * 2.0, lambda x: x * 3.0),
        (lambda x: x.t().reshape(2, 6), lambda x: x.reshape(2, 6)),
        (lambda x: (x, x + 1), lambda x: (x + 1, x)),
        (lambda x: x.sum(0), lambda x: x.sum(1)[:4]),
        (lambda x: x[1:], lambda x: x[:-1]),
        (lambda x: x.to(torch.float16).to(torch.float32), lambda x: x * 1.0),
    ],
)
def test_any_difference_in_what_is_computed_is_another_key(one: Any, other: Any) -> None:
    tracer = Tracer()
    assert trace(tracer, one, like(4, 3)).key != trace(tracer, other, like(4, 3)).key


def test_shapes_dtypes_and_options_are_part_of_the_key() -> None:
    def scaled(x: torch.Tensor, *, by: Any = 1) -> torch.Tensor:
        return x * by

    tracer = Tracer()
    keys = {
        trace(tracer, scaled, like(3)).key,
        trace(tracer, scaled, like(4)).key,
        trace(tracer, scaled, like(3, dtype="float16")).key,
        trace(tracer, scaled, like(3), by=2.0).key,
        trace(tracer, scaled, like(3), by=2).key,  # equal to 2.0 for Python, another graph for torch
    }
    assert len(keys) == 5


def test_keys_do_not_depend_on_the_tracer_or_the_order() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.t(), -1)

    def g(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    first, second = Tracer(), Tracer()
    keys = [trace(first, function, like(3, 3)).key for function in (f, g)]
    assert [trace(second, function, like(3, 3)).key for function in (g, f)] == keys[::-1]


def test_a_function_is_traced_once_for_its_shapes() -> None:
    calls = []

    def f(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return x + 1

    tracer = Tracer()
    for shape in ((3,), (3,), (4,), (3,)):
        trace(tracer, f, like(*shape))
    assert calls == [(3,), (4,)]


def test_operands_are_named_by_where_they_come_from() -> None:
    def f(x: torch.Tensor, weights: dict[str, Any]) -> dict[str, torch.Tensor]:
        return {"y": product(x, weights["q_proj"]) + weights["bias"], "x": x}

    pair = QuantizedWeight(like(8, 16, dtype="uint8"), like(8, 1, dtype="float16"), 20)
    graph = trace(Tracer(), f, like(5, 20), {"q_proj": pair, "bias": like(8)})
    assert [spec.name for spec in graph.inputs] == [
        "x",
        "weights.q_proj.codes",
        "weights.q_proj.scales",
        "weights.bias",
    ]
    assert [(spec.shape, spec.dtype) for spec in graph.outputs] == [((5, 8), "float32"), ((5, 20), "float32")]


def test_costs_are_read_off_the_graph() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w)

    graph = trace(Tracer(), f, like(5, 20), like(20, 8))
    assert graph.flops == 2 * 5 * 20 * 8
    assert graph.workspace_bytes == 2 * 5 * 8 * 4  # the product and the result


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x + torch.tensor([1.0, 2.0, 3.0]), "tensor constant"),
        (lambda x: x.view(5), "RuntimeError"),
        (lambda x: x if x.sum() > 0 else -x, "DataDependentOutputException|GuardOnDataDependent|RuntimeError"),
        (lambda x: x > 0, "result"),
        (lambda x: (x, 3), "result"),
        (lambda x, options=None: x.missing(), "AttributeError"),
    ],
)
def test_what_cannot_be_a_graph_is_refused(function: Any, says: str) -> None:
    with pytest.raises(GraphError) as caught:
        trace(Tracer(), function, like(3))
    assert re.search(says, caught.value.got), caught.value.got


def test_options_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(GraphError, match="unhashable"):
        trace(Tracer(), lambda x, sizes: x, like(3), sizes=[1, 2])
