# SPDX-License-Identifier: Apache-2.0
"""Bundles for the target `mlx` of a plain, a Qwen-like and a Gemma-like model, and states with examples for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from tests.support.bundles import made_once
from tests.support.models import tiny_model

FAMILIES = {"llama": "plain", "qwen2": "Qwen-like", "gemma3_text": "Gemma-like"}
LENGTH, CONTEXT, STEPS = 24, 160, 20
SIZES: dict[str, Any] = {"num_hidden_layers": 2, "intermediate_size": 96}
# One block with the sliding window, and one without.
OF_FAMILY: dict[str, dict[str, Any]] = {"gemma3_text": {"layer_types": ["sliding_attention", "full_attention"]}}
# AdamW's epsilon. With 1e-8 a first step moves an element whose gradient is only rounding by the whole rate, to either side.
EXACT = {"learning_rate": 2e-3, "adam_epsilon": 1e-5}
METHODS: dict[str, dict[str, Any]] = {"mesp": EXACT, "mebp": EXACT, "mezo": {}}


def build(family: str, folder: Path, targets: Any, methods: dict[str, Any] = METHODS, **training: Any) -> Path:
    model = tiny_model(family, folder / "model", **SIZES, **OF_FAMILY.get(family, {}))
    settings = Training(sequence_lengths=(LENGTH,), batch_size=2, steps=STEPS, seed=1, **training)
    Personalizer(model, methods, targets, context=CONTEXT, lora=Lora(rank=4), training=settings, data=None).build(
        folder / "bundle"
    )
    return folder / "bundle"


def bundle_of(factory: pytest.TempPathFactory, family: str, form: str) -> Path:
    """Made once a session, and for ExecuTorch too; read it, do not change it."""
    name, targets = f"mlx-{family}-{form}", {"mlx": {"int4": form}, "executorch": {}}
    return made_once(factory, name, lambda folder: build(family, folder, targets, commit_seconds=1e-6)) / "bundle"


def add_examples(model: PersonalModel, count: int = 4) -> None:
    """Rows of random tokens, of different lengths, some of their tokens masked."""
    numbers = np.random.default_rng(7)
    for number in range(count):
        length = LENGTH + 1 - 3 * number
        mask = (numbers.random(length) < 0.8).astype(int)
        mask[-1] = 1
        tokens = numbers.integers(3, model._bundle.manifest.text.vocab_size, length)
        model.examples.add({"tokens": tokens.tolist(), "mask": mask.tolist()}, id=str(number))
