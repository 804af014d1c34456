# SPDX-License-Identifier: Apache-2.0
"""A bundle of SmolLM2-135M-Instruct, and the same weights in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, Training
from tests.real_model.decoded import decoded_model


@pytest.fixture(scope="session")
def smollm2_bundle(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    training = Training(sequence_lengths=(64,), learning_rate=2e-4, steps=20, general_share=0.0)
    personalizer = Personalizer(
        smollm2, {"mesp": {"update": "adamw"}}, "executorch", context=256, lora=Lora(rank=8, alpha=16), training=training
    )
    return personalizer.build(tmp_path_factory.mktemp("smollm2") / "bundle")


@pytest.fixture(scope="session")
def in_transformers(smollm2: Path, smollm2_bundle: Path) -> Any:
    """The model with the weights of the bundle."""
    return decoded_model(smollm2, smollm2_bundle)
