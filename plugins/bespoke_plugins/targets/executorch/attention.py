# SPDX-License-Identifier: Apache-2.0
"""Replaces the attention of a tile of queries by our own operator.

XNNPACK computes scores of all keys, holds them for all heads and reads them several times. The operator computes what a query sees,
a span of keys at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from bespoke.graph import Graph, TensorSpec
from bespoke.graph.trace import Tracer
from bespoke.graph.tree import flatten
from bespoke.model.layers import attention_tile
from bespoke.ops import attention_workspace_bytes
from bespoke_plugins.targets.executorch.tape import Op, Tape, Value

OPERATOR = "bespoke::attention.out"


@dataclass(frozen=True)
class AttentionSizes:
    """What a graph of attention does not take as an operand."""

    heads: int
    kv_heads: int
    scale: float


def attention_sizes(graph: Graph) -> AttentionSizes | None:
    """The sizes if the graph is `attention_tile`, or None.

    They are read off the graph. Then `attention_tile` is traced with them: only an equal graph counts.
    """
    if [len(spec.shape) for spec in graph.inputs] != [2, 2, 2, 0, 0]:
        return None
    nodes = list(graph.module.graph.nodes)
    scales = [
        node.args[1] for node in nodes if node.target is torch.ops.aten.mul.Tensor and isinstance(node.args[1], float)
    ]
    views = [node.args[1] for node in nodes if node.target is torch.ops.aten.view.default and node.args[0] is nodes[1]]
    if not scales or not views or len(views[0]) != 3:
        return None
    _, kv_heads, width = views[0]
    queries, keys = (spec.shape[1] for spec in graph.inputs[:2])
    if width <= 0 or kv_heads * width != keys or queries % keys:
        return None
    sizes = AttentionSizes(queries // width, kv_heads, scales[0])
    return sizes if _traced(graph.inputs, sizes).key == graph.key else None


def _traced(inputs: tuple[TensorSpec, ...], sizes: AttentionSizes) -> Graph:
    leaves, form = flatten(inputs)
    static: dict[str, Hashable] = {"heads": sizes.heads, "kv_heads": sizes.kv_heads, "scale": sizes.scale}
    return Tracer().trace(attention_tile, leaves, form, static)[0]


def attend(tape: Tape, operands: Sequence[Value], sizes: AttentionSizes) -> list[Value]:
    """Records the operator. Operands: q, k, v, start and window."""
    result = (operands[0].shape, operands[0].dtype)
    return tape.kernel(OPERATOR, [*operands, sizes.heads, sizes.kv_heads, sizes.scale], [result])


def workspace_bytes(op: Op) -> int:
    """Memory of a call, as the operator asks for it."""
    q, k, _, _, _, heads, kv_heads, _ = op.arguments
    return attention_workspace_bytes(q.shape[0], k.shape[0], heads, kv_heads, q.shape[1] // heads)
