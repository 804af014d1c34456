# SPDX-License-Identifier: Apache-2.0
"""The cost of a call, read off the traced graph: workspace bytes, floating-point operations, bytes read and written."""

from __future__ import annotations

from typing import Any

import torch

from bespoke.ops.live_storage import VIEWS, Step, largest_live
from bespoke.ops.operators import OPERATORS, CallSizes, Int4Operator

aten = torch.ops.aten


def _nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(_nbytes(item) for item in value) if isinstance(value, list | tuple) else 0


def workspace_bytes(module: torch.fx.GraphModule, *, in_place: bool = False) -> int:
    """Largest sum of live intermediates and results in bytes, with the scratch of operators.

    `in_place`: as the device core runs the graph. It writes results to where they belong and has kernels of its own for products.
    """
    storage: dict[torch.fx.Node, torch.fx.Node] = {}
    steps = []
    for node in module.graph.nodes:
        storage[node] = storage[node.args[0]] if _shares(node) else node
        reads = [storage[argument] for argument in node.all_input_nodes]
        own = node.op == "call_function" and not _shares(node)
        nbytes = _nbytes(node.meta["val"]) if own else 0
        scratch = _scratch_bytes(node, nbytes, native=in_place) if own else 0
        steps.append(Step(storage[node], nbytes, reads, scratch))
    results = [storage[result] for result in module.graph.output_node().args[0]] if in_place else []
    return largest_live(steps, results)


def _shares(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and (str(node.target) in VIEWS or "getitem" in str(node.target))


def traffic_bytes(module: torch.fx.GraphModule) -> int:
    """Bytes that operators read and write: the cost of elementwise operators and copies.

    Int4 operators are left out. Reading their weights costs little compared with their arithmetic.
    """
    total = 0
    for node in module.graph.nodes:
        if node.op == "call_function" and not _shares(node) and not str(node.target).startswith("bespoke."):
            total += _nbytes(node.meta["val"]) + sum(_nbytes(argument.meta["val"]) for argument in node.all_input_nodes)
    return total


def _sizes(node: torch.fx.Node, result_bytes: int) -> tuple[Int4Operator, CallSizes] | None:
    """The record of a bespoke operator and the sizes of this call; None for operators of aten."""
    namespace, _, name = str(node.target).removesuffix(".default").partition(".")
    if node.op != "call_function" or namespace != "bespoke":
        return None
    first, codes = (tuple(node.args[position].meta["val"].shape) for position in (0, 1))
    return OPERATORS[name], CallSizes(first, codes, node.args[-1], result_bytes)


def _scratch_bytes(node: torch.fx.Node, result_bytes: int, native: bool) -> int:
    record = _sizes(node, result_bytes)
    if record is None:
        return 0
    operator, sizes = record
    return operator.native_workspace(sizes.first[0]) if native else operator.torch_workspace(sizes)


def flops(module: torch.fx.GraphModule) -> int:
    """Multiplications and additions of the matrix products."""
    total = 0
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        out = node.meta["val"]
        record = _sizes(node, 0)
        if record is not None:
            operator, sizes = record
            total += operator.flops(sizes)
        elif node.target in (aten.mm.default, aten.bmm.default):
            total += 2 * out.numel() * node.args[0].meta["val"].shape[-1]
        elif node.target is aten.addmm.default:
            total += 2 * out.numel() * node.args[1].meta["val"].shape[-1]
    return total
