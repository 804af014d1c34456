# SPDX-License-Identifier: Apache-2.0
"""Whole training steps in float64 against transformers and peft in float64: no rounding can hide a wrong formula.

The reference takes our RoPE tables and Gemma's 1 + w as fp32 holds it, both of which are held against its own elsewhere.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch

from bespoke import plugins
from bespoke.config import Training
from bespoke.rules.noise import noise
from bespoke.testing.tiny import TokenBatch
from tests.gradients.eager import EagerBuilder, Tensors, doubles
from tests.gradients.harness import Base, Bases, Reference, random_adapter, random_batch, spec
from tests.support.checks import few_of
from tests.support.models import TINY_FAMILIES, rope_of

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


@pytest.mark.parametrize("name", few_of(TINY_FAMILIES, ("llama",)))
def test_gradients_are_those_of_peft(name: str, bases: Bases) -> None:
    base, batch = bases(name), random_batch(bases(name).config, 33)
    adapter = random_adapter(spec(base, 3))
    reference_loss, expected = ExactReference(base, spec(base, 3), adapter).gradients(batch)
    for method, tiles in (("mebp", TILES), ("mesp", TILES), ("mesp", KEEPING)):
        b = eager(base, method, 3, batch, doubles(adapter), Training(batch_size=3, accumulation=2), tiles=tiles)
        assert b.metrics["loss"] == pytest.approx(reference_loss, rel=1e-12)
        for piece, reference in expected.items():
            error = np.linalg.norm(b.sums[piece].tensor.numpy() - reference) / np.linalg.norm(reference)
            assert error <= GRADIENT_TOLERANCE, f"{method}, {tiles}, {piece}"


@pytest.mark.parametrize("distribution", ["normal", "rademacher"])
@pytest.mark.parametrize("name", few_of(("qwen2", "gemma3_text"), ("qwen2",)))
def test_projected_gradient_is_the_difference_of_two_direct_losses(name: str, distribution: Any, bases: Bases) -> None:
    base, batch, epsilon = bases(name), random_batch(bases(name).config, 33), 1e-3
    adapter = random_adapter(spec(base, 3))
    options = {"epsilon": epsilon, "queries": 2, "distribution": distribution}
    b = eager(base, "mezo", 3, batch, doubles(adapter), Training(batch_size=3), options, epsilon=epsilon)
    reference = ExactReference(base, spec(base, 3), adapter)
    for query, g in enumerate(b.recorded):
        z = direction(base, 3, query, distribution)
        losses = []
        for sign in (+1, -1):
            reference.set({piece: value + sign * epsilon * z[piece] for piece, value in doubles(adapter).items()})
            with torch.no_grad():
                losses.append(float(reference.loss(batch)))
        assert g == pytest.approx((losses[0] - losses[1]) / (2 * epsilon), rel=1e-9)


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
