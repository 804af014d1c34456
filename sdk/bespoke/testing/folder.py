# SPDX-License-Identifier: Apache-2.0
"""Writes the tiny model as a folder and builds a bundle of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bespoke.compiler.bundle import build
from bespoke.compiler.request import BuildRequest, Method, TargetChoice
from bespoke.config import Budget, Settings, Training
from bespoke.contracts import Optimizer, Target
from bespoke.format.tensors import write_arrays
from bespoke.model.convert import named_sources
from bespoke.plugins import get
from bespoke.testing.tiny import CONTEXT, random_numbers, tiny_models

__all__ = ["build_tiny", "write_tiny_folder"]

NAME = "plain"  # the tiny model


def build_tiny(
    folder: Path,
    optimizer: Optimizer,
    options: Settings,
    training: Training,
    target: tuple[Target, Settings] | None = None,
) -> Path:
    """Builds a bundle in `folder` for one method, which need not be installed. The default `target` is torch."""
    if target is None:
        torch = get("target", "torch")
        target = torch, torch.Options()
    plugin, chosen = target
    request = BuildRequest(
        model=write_tiny_folder(folder / "model"),
        tokenizer=None,
        methods=(Method(optimizer.name, optimizer, options, training),),
        targets=(TargetChoice(plugin.name, plugin, chosen),),
        context=CONTEXT,
        draft_tokens=0,
        data=None,
        data_format=None,
        fields=None,
        encoding=None,
        rehearsal=False,
        lora=tiny_models()[NAME].lora,
        training=training,
        budget=Budget(),
        text=False,
        train_on="assistant",
        licence="Random numbers; no rights reserved",
        template_date=None,
        federation=None,
        signing_key=None,
    )
    return build(request, folder / "bundle", lambda stage, done, total: None)[0]


def write_tiny_folder(folder: Path) -> Path:
    """Writes a model without a tokenizer, as transformers writes it. It has one block, because runs take hundreds of steps."""
    config = tiny_models()[NAME].config.model_copy(update={"num_layers": 1, "sliding_layers": (False,)})
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": config.family,
                "hidden_size": config.hidden_size,
                "intermediate_size": config.intermediate_size,
                "num_hidden_layers": config.num_layers,
                "num_attention_heads": config.num_heads,
                "num_key_value_heads": config.num_kv_heads,
                "vocab_size": config.vocab_size,
                "rms_norm_eps": config.norm_eps,
                "rope_theta": config.rope.theta,
                "max_position_embeddings": config.max_positions,
                "tie_word_embeddings": False,
            }
        )
    )
    arrays = {}
    for sources in named_sources(config).values():
        for source in sources:
            scale = np.float32(
                0.3 if source.target == "table" else source.shape[-1] ** -0.5 if source.quantized else 0.2
            )
            numbers = random_numbers(f"folder {source.name}", source.shape)
            arrays[source.name] = scale * numbers + np.float32("norm" in source.target)
    write_arrays(folder / "model.safetensors", arrays)
    return folder
