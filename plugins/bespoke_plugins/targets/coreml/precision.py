# SPDX-License-Identifier: Apache-2.0
"""Chooses the operators that compute in fp16 with precision = "fp16": products and what lies between them, in forward graphs alone.

The Neural Engine computes in fp16 only. The square of 256 overflows fp16 and a gradient of 1e-6 loses some or all of its bits. So
norms, losses, updates and noise stay in fp32 and a graph with a backward pass is refused. Every first-order method has one, to
send gradients back through frozen weights.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from bespoke.errors import Unsupported
from bespoke.graph import Graph
from bespoke.ops import EMBEDDING_INT4, HEAD_CHUNK_GRADIENT_INT4, HEAD_CHUNK_INT4, LINEAR_INT4, LINEAR_TRANSPOSED_INT4

__all__ = ["half_nodes"]

_PRODUCTS = frozenset(
    {
        "aten.bmm.default",
        "aten.mm.default",
        EMBEDDING_INT4,
        HEAD_CHUNK_INT4,
        LINEAR_INT4,
    }
)
_BACKWARD = frozenset(
    {
        "aten._softmax_backward_data.default",
        "aten.sigmoid_backward.default",
        "aten.slice_backward.default",
        "aten.tanh_backward.default",
        HEAD_CHUNK_GRADIENT_INT4,
        LINEAR_TRANSPOSED_INT4,
    }
)
_BEFORE_RSQRT = ("aten.add.Tensor", "aten.mean.dim", "aten.mul.Tensor", "aten.pow.Tensor_Scalar")


def half_nodes(graph: Graph) -> frozenset[torch.fx.Node]:
    """Nodes that compute in fp16. Raises Unsupported for a backward pass and names the operator that shows it."""
    nodes = [
        node for node in graph.module.graph.nodes if node.op == "call_function" and node.target is not operator.getitem
    ]
    for node in nodes:
        if str(node.target) in _BACKWARD:
            raise Unsupported(
                f"Graph '{graph.name}', operator {node.target}",
                got='a backward pass with precision = "fp16"',
                expected="forward graphs alone: gradients are too small for fp16",
                next_step='Set precision = "fp32", or train with a zeroth-order method',
            )
    if not any(str(node.target) in _PRODUCTS for node in nodes):
        return frozenset()
    return frozenset(nodes) - _norms(nodes)


def _norms(nodes: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """Nodes of x rsqrt(mean(x^2) + eps), and the sum or product that computes x, so that the residual stays in fp32."""
    marked: set[torch.fx.Node] = set()
    for node in nodes:
        if str(node.target) == "aten.rsqrt.default":
            marked |= {node, *node.users}
            step: Any = node.args[0]
            while isinstance(step, torch.fx.Node) and str(step.target) in _BEFORE_RSQRT:
                marked.add(step)
                step = step.args[0]
    return marked
