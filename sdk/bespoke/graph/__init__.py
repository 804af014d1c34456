# SPDX-License-Identifier: Apache-2.0
"""Tracing, the builder, and what methods share: the one-pass head, update rules, vjp, tiled forward, layer pairs."""

from bespoke.graph.builder import PlanBuilder
from bespoke.graph.forward import (
    ATTENTION_LINEARS,
    MLP_LINEARS,
    Attention,
    Pass,
    attention_forward,
    attention_output,
    attention_weights,
    block_forward,
    block_pass,
    embed,
    mlp_slices,
    output_weights,
    pick,
    query_tiles,
    rope_rows,
    slice_adapter,
    slice_weights,
)
from bespoke.graph.head import head_loss, head_loss_and_gradient
from bespoke.graph.trace import Graph, TensorSpec
from bespoke.graph.update import FirstOrderOptions, update
from bespoke.graph.value import Batch, Value
from bespoke.graph.vjp import vjp
from bespoke.graph.zeroth_order import ZerothOrderOptions

__all__ = [
    "ATTENTION_LINEARS",
    "MLP_LINEARS",
    "Attention",
    "Batch",
    "FirstOrderOptions",
    "Graph",
    "Pass",
    "PlanBuilder",
    "TensorSpec",
    "Value",
    "ZerothOrderOptions",
    "attention_forward",
    "attention_output",
    "attention_weights",
    "block_forward",
    "block_pass",
    "embed",
    "head_loss",
    "head_loss_and_gradient",
    "mlp_slices",
    "output_weights",
    "pick",
    "query_tiles",
    "rope_rows",
    "slice_adapter",
    "slice_weights",
    "update",
    "vjp",
]
