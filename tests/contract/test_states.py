# SPDX-License-Identifier: Apache-2.0
"""State of a method's own: of any shape, zero at first, kept from step to step, with noise of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bespoke.contracts import ModelSpec, Settings, StepBuilder
from bespoke.methods import block_forward, embed, head_loss
from bespoke.rules.noise import noise
from bespoke.testing.rig import SEED, Case, Rig, planned
from bespoke.testing.tiny import tiny_adapter, tiny_batch

CASE = Case.of("plain", 7, 2)
PIECE = "block_00.q_proj.lora_A"


class Wandering:
    """Counts its steps, and adds noise up in a state of another shape than any piece."""

    name = "wandering"
    Options = Settings

    def train_step(self, b: StepBuilder, model: ModelSpec, options: Any) -> None:
        batch = b.batch()
        x = embed(b, model, batch.tokens)
        for block, group in enumerate(model.blocks):
            adapter = b.adapter(group)
            x, _ = block_forward(b, model, block, x, adapter)
            for piece in adapter.values():
                b.store(piece, b.call(torch.clone, piece))
        first = b.adapter(model.blocks[0])["q_proj.lora_A"]
        count, walk = b.state(first, "count", shape=()), b.state(first, "walk", shape=(5, 3))
        b.store(count, b.call(one_more, count))
        b.store(walk, b.call(torch.add, walk, b.noise(walk)))
        b.emit(loss=head_loss(b, model, x, batch))


def one_more(count: torch.Tensor) -> torch.Tensor:
    return count + 1


def test_states_of_any_shape_are_kept_and_have_noise_of_their_own() -> None:
    options = Settings()
    rig = Rig(CASE, planned(Wandering(), options, CASE), Wandering(), options)
    rig.buffers.fill(tiny_adapter(CASE.model_name))
    assert not rig.state()[f"{PIECE}.walk"].any()
    for step in (1, 2):
        rig.step([tiny_batch(CASE.model, CASE.rows, CASE.length, seed=step)], step=step, learning_rate=0.0)
    state = rig.state()
    assert float(state[f"{PIECE}.count"]) == 2
    pieces = len(CASE.model.adapter_shapes("block_00"))
    drawn = [noise((5, 3), seed=SEED, step=step, query=0, block=0, tensor=pieces + 1) for step in (1, 2)]
    np.testing.assert_array_equal(state[f"{PIECE}.walk"], drawn[0] + drawn[1])
