# SPDX-License-Identifier: Apache-2.0
"""What an error of a weight counts in each column: against activations that hooks in transformers see, and in a built bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from bespoke import Lora, Personalizer, Training
from bespoke.bundle.reader import read_bundle
from bespoke.compiler import activations
from bespoke.compiler.activations import column_counts
from bespoke.compiler.general import general_texts
from bespoke.data.text import Tokenizer
from bespoke.model.checkpoint import Checkpoint
from bespoke.model.families import read_config
from bespoke.model.quantize import dequantize, quantize
from bespoke.model.spec import ModelSpec
from tests.support.models import EACH_FAMILY, mean_squares, reference_dequantize, tiny_model


def spec(folder: Path) -> ModelSpec:
    return ModelSpec(read_config(folder), Lora(rank=2))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", EACH_FAMILY)
def test_each_column_counts_the_mean_square_of_its_activation(
    family: str, tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model(family, tmp_path / "model", tied=tied)
    tokens = torch.from_numpy(np.random.default_rng(1).integers(3, 120, (3, 40)))
    monkeypatch.setattr(activations, "text_windows", lambda model, tokenizer: tokens)
    found = column_counts(folder, spec(folder), Checkpoint.open(folder), None)
    seen = mean_squares(folder, tokens)
    assert found.keys() == seen.keys()
    for name, expected in seen.items():
        powers = np.log2(found[name])
        assert (powers == np.rint(powers)).all()
        assert powers.max() == 0
        np.testing.assert_allclose(powers, np.maximum(np.log2(expected / expected.max()), -30), atol=1.01, err_msg=name)


def test_a_built_bundle_has_the_weights_that_the_texts_activations_ask_for(stories: Path, tmp_path: Path) -> None:
    """A model with a tokenizer, by the second quantizer, tensor by tensor. The weights differ from those without activations."""
    training = Training(sequence_lengths=(16,), batch_size=1)
    asked = Personalizer(stories, "mezo", "torch", lora=Lora(rank=2), training=training, context=32, data=None)
    bundle = asked.build(tmp_path / "bundle")
    counts = column_counts(stories, spec(stories), Checkpoint.open(stories), Tokenizer.open(stories))
    model = AutoModelForCausalLM.from_pretrained(stories, dtype=torch.float32)
    changed = 0
    with read_bundle(bundle) as opened:
        for block in range(model.config.num_hidden_layers):
            weights = opened.weights(f"block_{block:02d}")
            for part, name in (("self_attn", "q_proj"), ("self_attn", "o_proj"), ("mlp", "down_proj")):
                full = f"model.layers.{block}.{part}.{name}.weight"
                weight = model.get_parameter(full)
                found = dequantize(weights[f"{name}.codes"], weights[f"{name}.scales"], weight.shape[1])
                np.testing.assert_array_equal(
                    found, reference_dequantize(weight, torch.from_numpy(counts[full])).numpy()
                )
                changed += (weights[f"{name}.codes"] != quantize("w", weight.detach().numpy())[0]).any()
    assert changed


def test_the_numbers_do_not_depend_on_threads(stories: Path) -> None:
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(column_counts(stories, spec(stories), Checkpoint.open(stories), Tokenizer.open(stories)))
    torch.set_num_threads(before)
    assert found[0].keys() == found[1].keys()
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


def test_a_model_that_cannot_say_the_texts_counts_all_columns_alike(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path / "model")
    assert general_texts(None, 32, 131) is None
    assert column_counts(folder, spec(folder), Checkpoint.open(folder), None) == {}
