# SPDX-License-Identifier: Apache-2.0
"""What authors of optimizers write a step with: tiled forward and backward, the one-pass head, update rules, vjp."""

from bespoke.methods.backward import (
    attention_backward,
    attention_output_backward,
    inputs_backward,
    mlp_backward,
)
from bespoke.methods.forward import (
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
from bespoke.methods.head import head_backward, head_loss, head_loss_and_gradient, head_losses, head_pass, token_losses
from bespoke.methods.trailing import trail, trailing_sides
from bespoke.methods.update import FirstOrderOptions, summed_gradients, update
from bespoke.methods.vjp import vjp
from bespoke.methods.zeroth_order import (
    LEAST_CURVATURE,
    CurvatureOptions,
    NormalizedOptions,
    ZerothOrderOptions,
    descended,
    move,
    sides,
)

__all__ = [
    "ATTENTION_LINEARS",
    "LEAST_CURVATURE",
    "MLP_LINEARS",
    "Attention",
    "CurvatureOptions",
    "FirstOrderOptions",
    "NormalizedOptions",
    "Pass",
    "ZerothOrderOptions",
    "attention_backward",
    "attention_forward",
    "attention_output",
    "attention_output_backward",
    "attention_weights",
    "block_forward",
    "block_pass",
    "descended",
    "embed",
    "head_backward",
    "head_loss",
    "head_loss_and_gradient",
    "head_losses",
    "head_pass",
    "inputs_backward",
    "mlp_backward",
    "mlp_slices",
    "move",
    "output_weights",
    "pick",
    "query_tiles",
    "rope_rows",
    "sides",
    "slice_adapter",
    "slice_weights",
    "summed_gradients",
    "token_losses",
    "trail",
    "trailing_sides",
    "update",
    "vjp",
]
