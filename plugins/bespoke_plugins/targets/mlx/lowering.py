# SPDX-License-Identifier: Apache-2.0
"""Lowers a traced graph to an MLX file: it calls the operators on MLX's arrays and MLX exports the calls."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import torch

from bespoke.errors import Unsupported
from bespoke.graph import Graph
from bespoke_plugins.targets.mlx.int4 import Int4, int4_operators
from bespoke_plugins.targets.mlx.operators import OPERATORS
from bespoke_plugins.targets.mlx.records import Program, read

Array = Any  # mx.array
_IGNORED = frozenset(["device", "layout", "memory_format", "pin_memory"])  # arguments about torch's memory


def exported(graph: Graph, int4: Int4) -> Program:
    """The graph in MLX's records, for the processor. Raises Unsupported that names graph and operator."""
    function = _function(graph, int4)
    with mx.stream(mx.cpu), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.mlxfn"
        mx.export_function(
            str(path), function, *[mx.zeros(spec.shape, dtype=getattr(mx, spec.dtype)) for spec in graph.inputs]
        )
        return read(path.read_bytes())


def _function(graph: Graph, int4: Int4) -> Callable[..., tuple[Array, ...]]:
    """Runs the graph on MLX arrays of its operands, in order."""
    operators = {**OPERATORS, **int4_operators(int4)}
    nodes = list(graph.module.graph.nodes)
    for node in nodes:
        if node.op == "call_function" and str(node.target) not in operators and not _picks(node):
            raise _refusal(
                graph, node, "an operator that the target has no record of", f"one of {', '.join(sorted(operators))}"
            )

    def run(*operands: Array) -> tuple[Array, ...]:
        values: dict[torch.fx.Node, Any] = {}
        given = iter(operands)

        def argument(of: Any) -> Any:
            return torch.fx.node.map_arg(of, lambda node: values[node])

        for node in nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "output":
                return tuple(argument(node.args[0]))
            elif _picks(node):
                values[node] = argument(node.args[0])[node.args[1]]
            else:
                options = {name: argument(value) for name, value in node.kwargs.items() if name not in _IGNORED}
                try:
                    values[node] = operators[str(node.target)](*argument(node.args), **options)
                except Exception as problem:
                    raise _refusal(
                        graph, node, f"{type(problem).__name__}: {problem}", "a call that MLX can make"
                    ) from problem
        raise AssertionError("a graph without an output")

    return run


def _picks(node: torch.fx.Node) -> bool:
    """Whether the node takes one of several results."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def _refusal(graph: Graph, node: torch.fx.Node, got: str, expected: str) -> Unsupported:
    return Unsupported(
        f"Graph '{graph.name}', operator {node.target}",
        got=got,
        expected=expected,
        next_step="Write the function with other operators, or choose another target",
    )
