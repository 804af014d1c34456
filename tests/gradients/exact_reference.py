# SPDX-License-Identifier: Apache-2.0
"""transformers and peft in float64: the oracle of whole steps, and the noise that a step draws."""

from __future__ import annotations

from typing import Any, Literal

import torch

from bespoke import plugins
from bespoke.config import Training
from bespoke.rules.noise import noise
from bespoke.testing.tiny import TokenBatch
from tests.gradients.eager import EagerBuilder, Tensors
from tests.gradients.harness import Base, Reference, spec
from tests.support.models import rope_of

GRADIENT_TOLERANCE = 1e-10
TILES = {"query_tile": 5, "row_tile": 66, "mlp_slice": 32, "head_chunk": 17}

# Other rows, and something kept: both in the last block, in the one before attention alone, and nothing in the first.
KEEPING = TILES | {"row_tile": 7, "kept_attention": 2, "kept_products": 1}


class ExactReference(Reference):
    """With the RoPE tables and norms of the weight files, so that both sides have the same inputs to the last bit."""

    def __init__(self, base: Base, *args: Any) -> None:
        super().__init__(base, *args)
        decoder = self.peft.get_base_model().model
        decoder.rotary_emb.forward = rope_of(base.groups["rope"])
        for module in decoder.modules():
            if type(module).__name__ == "Gemma3RMSNorm":
                module.weight.copy_((1 + module.weight.float()).double() - 1)


def eager(
    base: Base,
    method: str,
    rank: int,
    batch: TokenBatch,
    state: Tensors,
    training: Training,
    options: dict[str, Any] | None = None,
    tiles: dict[str, int] | None = None,
    train: Literal["both", "B"] = "both",
    **scalars: float,
) -> EagerBuilder:
    """The builder after one training step."""
    model = spec(base, rank, train=train)
    b = EagerBuilder(base, model, training, batch, state, {"learning_rate": 0.0, **scalars}, tiles or TILES)
    plugin = plugins.get("optimizer", method)
    plugin.train_step(b, model, plugin.Options(**(options or {})))
    return b


def direction(base: Base, rank: int, query: int, distribution: Any, *, seed: int = 0, step: int = 1) -> Tensors:
    """z of every piece, drawn here from the counter that the design writes down: block, then position in the block."""
    drawn = {}
    for block in range(base.config.num_layers):
        pieces = [f"{linear}.lora_{letter}" for linear in base.config.linear_shapes for letter in "AB"]
        for tensor, piece in enumerate(pieces):
            name = f"block_{block:02d}.{piece}"
            out, width = base.config.linear_shapes[piece.split(".")[0]]
            shape = (rank, width) if piece.endswith("A") else (out, rank)
            z = noise(shape, seed=seed, step=step, query=query, block=block, tensor=tensor, distribution=distribution)
            drawn[name] = torch.from_numpy(z).double()
    return drawn
