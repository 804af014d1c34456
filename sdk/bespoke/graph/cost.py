# SPDX-License-Identifier: Apache-2.0
"""What a call of a graph costs, read off the traced graph: bytes beside its operands, and floating-point operations."""

from __future__ import annotations

from typing import Any

import torch

from bespoke.ops import decode_bytes, head_chunk_bytes

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


def workspace_bytes(module: torch.fx.GraphModule) -> int:
    """Largest sum of live intermediates and results, operators' own scratch included, in bytes."""
    nodes = list(module.graph.nodes)
    storage: dict[torch.fx.Node, torch.fx.Node] = {}
    last: dict[torch.fx.Node, int] = {}
    for position, node in enumerate(nodes):
        shares = node.op == "call_function" and (node.target in _VIEWS or "getitem" in str(node.target))
        storage[node] = storage[node.args[0]] if shares else node
        for argument in node.all_input_nodes:
            last[storage[argument]] = position
    live = peak = 0
    for position, node in enumerate(nodes):
        if node.op == "call_function":
            own = storage[node] is node
            live += _nbytes(node.meta["val"]) if own else 0
            peak = max(peak, live + _scratch_bytes(node))
            last.setdefault(storage[node], position)
        for ended in [n for n, end in last.items() if end == position]:
            live -= _nbytes(ended.meta["val"]) if ended.op == "call_function" else 0
    return peak


def _scratch_bytes(node: torch.fx.Node) -> int:
    """What an int4 operator holds at a time; softmax and friends keep nothing."""
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
