# SPDX-License-Identifier: Apache-2.0
"""Small bundles of prge, their rows, and what their plan makes of them step by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bespoke import Lora, Personalizer, Training
from bespoke.bundle.reader import Bundle
from bespoke.golden.batch import padded
from bespoke.reference.machine import Machine
from bespoke.rules.batches import TokenBatch
from tests.support.models import tiny_model

LENGTH, ROWS, STEPS, SEED, RATE, EPSILON = 12, 2, 6, 7, 1e-3, 1e-2
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}


def build(
    folder: Path, blocks: int = 2, others: Mapping[str, dict[str, object]] | None = None, **options: object
) -> Path:
    """A bundle of prge with these options, or of `others`."""
    model = tiny_model("llama", folder / "model", num_hidden_layers=blocks, **SIZES)
    training = Training(sequence_lengths=(LENGTH,), batch_size=ROWS, steps=STEPS, seed=1)
    methods = others or {"prge": {"queries": 2, "epsilon": EPSILON} | options}
    lora = Lora(rank=3, alpha=6.0, train="B")
    return Personalizer(model, methods, "torch", context=32, lora=lora, training=training, data=None).build(
        folder / "bundle"
    )


def rows() -> np.ndarray:
    return np.random.default_rng(0).integers(3, 60, (STEPS * ROWS, LENGTH + 1))


def walked(bundle: Bundle) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of each step, and the adapter, by the plan."""
    machine = Machine(bundle, bundle.method())
    machine.buffers.fill(bundle.initial_adapter())
    losses = []
    for step in range(1, STEPS + 1):
        outcome = machine.train_step([batch(step)], learning_rate=RATE, step=step, seed=SEED)
        machine.buffers.flip()
        losses.append(float(outcome.metrics["loss"]))
    return losses, {name: piece.copy() for name, piece in machine.adapter().items()}


def batch(step: int) -> TokenBatch:
    tokens = rows()[(step - 1) * ROWS : step * ROWS]
    return padded(tokens, np.ones_like(tokens), {}, ROWS, LENGTH)
