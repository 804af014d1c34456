# SPDX-License-Identifier: Apache-2.0
"""The loss at an adapter that is changed block by block, in tiles: what forward-only methods measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Value
from bespoke.methods.forward import block_forward, embed
from bespoke.methods.head import head_loss

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

__all__ = ["perturbed_loss"]


def perturbed_loss(b: StepBuilder, model: ModelSpec, perturbed: Callable[[str], Mapping[str, Value]]) -> Value:
    """The loss of the batch, (). `perturbed(group)` gives the pieces of a block's adapter, which are dropped after the block."""
    batch = b.batch()
    x = embed(b, model, batch.tokens)
    for block, group in enumerate(model.blocks):
        x, _ = block_forward(b, model, block, x, dict(perturbed(group)))
    return head_loss(b, model, x, batch)
