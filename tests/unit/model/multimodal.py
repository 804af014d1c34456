# SPDX-License-Identifier: Apache-2.0
"""A tiny model of text and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def tiny_multimodal(folder: Path) -> Any:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    from tests.support.models import randomize, tiny_config

    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    text = tiny_config("gemma3_text", num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"])
    model = Gemma3ForConditionalGeneration(Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4))
    randomize(model.model.language_model, gemma=True)
    model.save_pretrained(folder)
    return model
