# SPDX-License-Identifier: Apache-2.0
"""Rewrites a forward graph for the NPU's compiler: quantized weights become dense constants and masks become numbers to add."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from bespoke.errors import Unsupported
from bespoke.graph import Graph
from bespoke.ops import HEAD_CHUNK_INT4, LINEAR_INT4, decode, head_chunk_of_logits
from bespoke_plugins.targets.executorch.kernels import BACKWARD
from bespoke_plugins.targets.executorch.qnn.int4 import Int4Weight

UNSEEN = -1e4  # added to masked scores: its exp is 0 and fp16 can hold it


@dataclass(frozen=True)
class Dense:
    """`module` takes the operands that are not baked, in order. `weights`: the int4 weights of the constants, by name."""

    module: torch.fx.GraphModule
    weights: Mapping[str, Int4Weight]


def dense_graph(graph: Graph, baked: Mapping[str, np.ndarray]) -> Dense:
    """The dense graph. Raises Unsupported for a backward pass."""
    writer = _Dense(graph, {name: torch.from_numpy(array.copy()) for name, array in baked.items()})
    operands = [
        torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in graph.inputs if spec.name not in baked
    ]
    module = make_fx(writer.run_with, tracing_mode="fake", _allow_non_fake_inputs=True)(*operands)
    names = [str(node.target) for node in module.graph.nodes if node.op == "get_attr"]
    constants = {getattr(module, name).data_ptr(): name for name in names}
    return Dense(
        module, {constants[writer.weights[node].data_ptr()]: weight for node, weight in writer.quantized.items()}
    )


class _Dense(torch.fx.Interpreter):
    """Traces the graph with dense products for weights that are held, and with masks as numbers. A product whose weight stays an
    operand keeps its operator, for the processor."""

    def __init__(self, graph: Graph, held: Mapping[str, torch.Tensor]) -> None:
        super().__init__(graph.module)
        self.described = graph
        self.held = held
        self.at: torch.fx.Node
        placeholders = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
        self.names = {node: spec.name for node, spec in zip(placeholders, graph.inputs, strict=True)}
        products = [node for node in graph.module.graph.nodes if _kind(node) in ("linear", "head")]
        self.quantized = {node: self._quantized(node) for node in products if self._holds(node)}
        self.weights = {node: self._weight(node) for node in self.quantized}

    def run_with(self, *operands: torch.Tensor) -> Any:
        """The traced module. `operands` leaves out those that are held."""
        given = iter(operands)
        return super().run(
            *[self.held[spec.name] if spec.name in self.held else next(given) for spec in self.described.inputs]
        )

    def run_node(self, n: torch.fx.Node) -> Any:
        self.at = n
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = _kind(self.at)
        if kind == "refused":
            raise Unsupported(
                f"Graph '{self.described.name}', operator {target}",
                got="a graph of a backward pass",
                expected="forward graphs, of evaluation, answers and methods that train by forward passes",
                next_step="Choose such a method (mezo), or leave out delegate = 'qnn'",
            )
        held = self.at in self.weights
        if held and kind == "linear":
            return args[0] @ self.weights[self.at]
        if held and kind == "head":
            h, _, _, targets, start, *state = args
            statistics, _, _ = head_chunk_of_logits(h @ self.weights[self.at], targets, start, *state)
            return statistics
        if kind == "mask":
            seen, scores, _ = args
            return scores + torch.where(seen, 0.0, UNSEEN)
        return super().call_function(target, args, kwargs)

    def _weight(self, node: torch.fx.Node) -> torch.Tensor:
        """The transpose [columns, rows] of the columns that a product reads."""
        codes, scales, first, columns = self._read(node)
        return decode(codes, scales, codes.shape[1] * 2, torch.float32)[:, first : first + columns].t().contiguous()

    def _quantized(self, node: torch.fx.Node) -> Int4Weight:
        return Int4Weight.of(*self._read(node))

    def _holds(self, node: torch.fx.Node) -> bool:
        places = (1, 2) if _kind(node) == "head" else (1, 2, 3)
        return all(node.args[place] is None or self.names.get(node.args[place]) in self.held for place in places)

    def _read(self, node: torch.fx.Node) -> tuple[torch.Tensor, torch.Tensor, int, int]:
        """Codes, scales, the first column and the number of columns."""
        codes, scales = (self._held(node.args[place]) for place in (1, 2))
        cut, columns = (None, node.args[0].meta["val"].shape[1]) if _kind(node) == "head" else node.args[3:5]
        return codes, scales, 0 if cut is None else int(self._held(cut)), columns

    def _held(self, node: Any) -> torch.Tensor:
        return self.held[self.names[node]]


def _kind(node: torch.fx.Node) -> str:
    name = str(node.target)
    if name in BACKWARD:
        return "refused"
    if name in (LINEAR_INT4, HEAD_CHUNK_INT4):
        return "linear" if "linear" in name else "head"
    if name == "aten.where.self" and _number(node.args[2]) == -math.inf:
        return "mask"
    return ""


def _number(value: Any) -> Any:
    """The number in a one-element tensor that the graph names."""
    return value.args[0] if str(getattr(value, "target", "")) == "aten.scalar_tensor.default" else None
