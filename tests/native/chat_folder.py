# SPDX-License-Identifier: Apache-2.0
"""A small random model with the tokenizer and template of Qwen2.5, and its bundle for the core."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bespoke import Personalizer, Training
from tests.support.bundles import made_once
from tests.support.models import tiny_model

CONTEXT = 512


@pytest.fixture(scope="module")
def folder(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(place: Path) -> None:
        sizes = {
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
        }  # quickly planned
        model = tiny_model("qwen2", place / "model", vocab_size=151_936, max_position_embeddings=CONTEXT, **sizes)
        for file in (data_folder / "tokenizers" / "qwen2.5").iterdir():
            shutil.copy(file, model / file.name)
        training = Training(sequence_lengths=(16,), batch_size=1, steps=3)
        Personalizer(model, "mesp", "executorch", context=CONTEXT, training=training, data=None).build(place / "bundle")

    return made_once(tmp_path_factory, "session-texts", make)
