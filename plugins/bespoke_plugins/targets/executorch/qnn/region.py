# SPDX-License-Identifier: Apache-2.0
"""Chooses the operators for the NPU: one region around a graph's matrix products, entered once and left once.

The NPU computes in fp16. Operators that need fp32 stay on the processor: squares and norms, sums with a value that no product
computes (the residual stream), and everything that depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

PRODUCTS = {"aten.mm.default", "aten.bmm.default"}
LAYOUT = {
    "aten._unsafe_view.default",
    "aten.cat.default",
    "aten.clone.default",
    "aten.expand.default",
    "aten.permute.default",
    "aten.slice.Tensor",
    "aten.split.Tensor",
    "aten.stack.default",
    "aten.t.default",
    "aten.transpose.int",
    "aten.unsqueeze.default",
    "aten.view.default",
}
ARITHMETIC = {
    "aten._softmax.default",
    "aten.add.Tensor",
    "aten.div.Scalar",
    "aten.div.Tensor",
    "aten.gelu.default",
    "aten.mul.Scalar",
    "aten.mul.Tensor",
    "aten.neg.default",
    "aten.sigmoid.default",
    "aten.silu.default",
    "aten.sub.Tensor",
    "aten.tanh.default",
}


@dataclass(frozen=True)
class Region:
    """The region as a `module` from `inputs` to `outputs`, float32 nodes of the whole graph. `after`: nodes that need outputs."""

    nodes: frozenset[torch.fx.Node]
    after: frozenset[torch.fx.Node]
    inputs: tuple[torch.fx.Node, ...]
    outputs: tuple[torch.fx.Node, ...]
    module: torch.fx.GraphModule


def region_of(module: torch.fx.GraphModule) -> Region | None:
    """The region, or None if the graph has no matrix product."""
    nodes, after = _nodes(module)
    if not nodes:
        return None
    inside = [node for node in module.graph.nodes if node in nodes]
    read = dict.fromkeys(a for node in inside for a in node.all_input_nodes if a not in nodes and a.op != "get_attr")
    given = [node for node in inside if not _is_list(node) and any(user not in nodes for user in node.users)]
    return Region(nodes, after, tuple(read), tuple(given), _outlined(module, inside, list(read), given))


def _nodes(module: torch.fx.GraphModule) -> tuple[frozenset[torch.fx.Node], frozenset[torch.fx.Node]]:
    """The region's nodes (products, the layout of their operands, and what depends on them), and all nodes after the region."""
    nodes: set[torch.fx.Node] = set()
    derived: set[torch.fx.Node] = set()  # depend on a product and are in the region
    left: set[torch.fx.Node] = set()  # depend on a product and are outside
    for node in module.graph.nodes:
        before = node.all_input_nodes
        if not any(a in left for a in before) and _is_taken(node, derived):
            nodes.add(node)
            if str(node.target) in PRODUCTS or any(a in derived for a in before):
                derived.add(node)
        elif any(a in left or a in derived for a in before):
            left.add(node)

    near = _near(nodes)
    after: set[torch.fx.Node] = set()
    for node in module.graph.nodes:
        if (
            node.op == "call_function"
            and node not in near
            and any(a in near or a in after for a in node.all_input_nodes)
        ):
            after.add(node)
    return near, frozenset(after)


def _near(nodes: set[torch.fx.Node]) -> frozenset[torch.fx.Node]:
    """The nodes that lead to a product or depend on one."""
    near: set[torch.fx.Node] = set()
    waiting = [node for node in nodes if str(node.target) in PRODUCTS]
    while waiting:
        node = waiting.pop()
        if node in nodes and node not in near:
            near.add(node)
            waiting += [*node.all_input_nodes, *node.users]
    return frozenset(near)


def _is_taken(node: torch.fx.Node, derived: set[torch.fx.Node]) -> bool:
    name, value = str(node.target), node.meta.get("val")
    if "getitem" in name:
        return str(node.args[0].target) == "aten.split.Tensor" and _is_float(value)
    if name in PRODUCTS | LAYOUT:
        return _is_float(value[0] if isinstance(value, list | tuple) else value)
    if name not in ARITHMETIC or not _is_float(value):
        return False
    before = node.all_input_nodes
    square = name == "aten.mul.Tensor" and len(before) == 1 and node.args[0] is node.args[1]
    residual = name == "aten.add.Tensor" and any(
        a not in derived and a.meta["val"].shape == value.shape for a in before
    )
    return any(a in derived for a in before) and not square and not residual


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32


def _is_list(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), list | tuple)


def _outlined(
    module: torch.fx.GraphModule,
    inside: Sequence[torch.fx.Node],
    read: Sequence[torch.fx.Node],
    given: Sequence[torch.fx.Node],
) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for number, node in enumerate(read):
        copies[node] = graph.placeholder(f"x{number}")
        copies[node].meta = dict(node.meta)
    constants = dict.fromkeys(a for node in inside for a in node.all_input_nodes if a.op == "get_attr")
    for node in (*constants, *inside):
        copies[node] = graph.node_copy(node, lambda old: copies[old])
    graph.output(tuple(copies[node] for node in given))
    return torch.fx.GraphModule({str(node.target): getattr(module, str(node.target)) for node in constants}, graph)
