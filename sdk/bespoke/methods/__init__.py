# SPDX-License-Identifier: Apache-2.0
"""Functions to write a training step with: tiled forward and backward, the one-pass head, update rules, vjp."""

from bespoke.methods.backward import (
    attention_backward,
    attention_output_backward,
    inputs_backward,
    mlp_backward,
)
from bespoke.methods.federated import (
    MAX_COLUMNS,
    Guidance,
    directions_of,
    moved,
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
from bespoke.methods.perturbed_loss import perturbed_loss
from bespoke.methods.preferences import PreferenceOptions, loss_and_gradient
from bespoke.methods.trailing import trail, trailing_perturbed
from bespoke.methods.update import FirstOrderOptions, summed_gradients, update
from bespoke.methods.vjp import vjp
from bespoke.methods.zeroth_order import (
    LEAST_CURVATURE,
    CurvatureOptions,
    NormalizedOptions,
    ZerothOrderOptions,
    descended,
    mean,
    move,
    perturbed,
    projected_gradient,
)

__all__ = [
    "ATTENTION_LINEARS",
    "LEAST_CURVATURE",
    "MAX_COLUMNS",
    "MLP_LINEARS",
    "Attention",
    "CurvatureOptions",
    "FirstOrderOptions",
    "Guidance",
    "NormalizedOptions",
    "Pass",
    "PreferenceOptions",
    "ZerothOrderOptions",
    "attention_backward",
    "attention_forward",
    "attention_output",
    "attention_output_backward",
    "attention_weights",
    "block_forward",
    "block_pass",
    "descended",
    "directions_of",
    "embed",
    "head_backward",
    "head_loss",
    "head_loss_and_gradient",
    "head_losses",
    "head_pass",
    "inputs_backward",
    "loss_and_gradient",
    "mean",
    "mlp_backward",
    "mlp_slices",
    "move",
    "moved",
    "output_weights",
    "perturbed",
    "perturbed_loss",
    "pick",
    "projected_gradient",
    "query_tiles",
    "rope_rows",
    "slice_adapter",
    "slice_weights",
    "summed_gradients",
    "token_losses",
    "trail",
    "trailing_perturbed",
    "update",
    "vjp",
]
