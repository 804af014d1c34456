# SPDX-License-Identifier: Apache-2.0
"""What a call of a graph costs, read off the traced graph: bytes beside its operands, floating-point operations, bytes moved."""

from __future__ import annotations

from typing import Any

import torch

from bespoke.ops import decode_bytes, head_chunk_bytes
from bespoke.ops.workspace import operator_scratch_bytes

aten = torch.ops.aten

# Results that share the storage of their first argument.
_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.t.default,
    aten.transpose.int,
    aten.permute.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.expand.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.split.Tensor,
    aten.split_with_sizes.default,
}


def _nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(_nbytes(item) for item in value) if isinstance(value, list | tuple) else 0


def workspace_bytes(module: torch.fx.GraphModule, *, in_place: bool = False) -> int:
    """Largest sum of live intermediates and results, operators' own scratch included, in bytes.

    `in_place`: as a device core runs it, which writes results to where they belong and multiplies by its own kernels.
    """
    nodes = list(module.graph.nodes)
    storage: dict[torch.fx.Node, torch.fx.Node] = {}
    last: dict[torch.fx.Node, int] = {}
    for position, node in enumerate(nodes):
        storage[node] = storage[node.args[0]] if _shares(node) else node
        for argument in node.all_input_nodes:
            last[storage[argument]] = position
    elsewhere = {node for node in nodes if node.op != "call_function"}
    if in_place:
        elsewhere |= {storage[result] for result in nodes[-1].args[0]}
    scratch = _kernel_bytes if in_place else _scratch_bytes
    ends: dict[int, list[torch.fx.Node]] = {}
    for node, position in last.items():
        ends.setdefault(position, []).append(node)
    live = peak = 0
    for position, node in enumerate(nodes):
        if node.op != "call_function":
            continue
        live += 0 if storage[node] is not node or node in elsewhere else _nbytes(node.meta["val"])
        peak = max(peak, live + scratch(node))
        if storage[node] not in last:  # nobody reads it
            ends.setdefault(position, []).append(storage[node])
        live -= sum(_nbytes(ended.meta["val"]) for ended in ends.get(position, ()) if ended not in elsewhere)
    return peak


def _shares(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and (node.target in _VIEWS or "getitem" in str(node.target))


def traffic_bytes(module: torch.fx.GraphModule) -> int:
    """Bytes that operators read and write, each by itself: what elementwise work and copies cost. Int4 operators, whose weights are
    small beside their work, are left out."""
    total = 0
    for node in module.graph.nodes:
        if node.op == "call_function" and not _shares(node) and not str(node.target).startswith("bespoke."):
            total += _nbytes(node.meta["val"]) + sum(_nbytes(argument.meta["val"]) for argument in node.all_input_nodes)
    return total


def _kernel_bytes(node: torch.fx.Node) -> int:
    """Scratch of the native operators."""
    namespace, _, name = str(node.target).removesuffix(".default").partition(".")
    if namespace != "bespoke":
        return 0
    return operator_scratch_bytes(name, node.args[0].meta["val"].shape[0])


def _scratch_bytes(node: torch.fx.Node) -> int:
    """What an int4 operator of the torch runtime holds at a time; softmax and friends keep nothing."""
    target = str(node.target)
    if target.startswith("bespoke.linear_int4"):
        codes = node.args[1].meta["val"]
        return decode_bytes(codes.shape[0], node.args[4])
    if target.startswith("bespoke.head_chunk"):
        h, codes = (node.args[position].meta["val"] for position in (0, 1))
        return head_chunk_bytes(h.shape[0], codes.shape[0], h.shape[1])
    if target.startswith("bespoke.embedding_int4"):
        return _nbytes(node.meta["val"]) * 3 // 2
    return 0


def flops(module: torch.fx.GraphModule) -> int:
    """Multiplications and additions of the matrix products."""
    total = 0
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        out = node.meta["val"]
        if node.target in (aten.mm.default, aten.bmm.default):
            total += 2 * out.numel() * node.args[0].meta["val"].shape[-1]
        elif node.target is aten.addmm.default:
            total += 2 * out.numel() * node.args[1].meta["val"].shape[-1]
        elif str(node.target) == "bespoke.linear_int4.default":
            total += 2 * out.numel() * node.args[4]
        elif str(node.target) == "bespoke.linear_int4_transposed.default":
            total += 2 * out.numel() * node.args[0].meta["val"].shape[-1]
        elif str(node.target).startswith("bespoke.head_chunk"):  # logits, and with a gradient the sum of rows
            products = 2 if "gradient" in str(node.target) else 1
            total += products * 2 * node.args[0].meta["val"].numel() * node.args[1].meta["val"].shape[0]
    return total
