# SPDX-License-Identifier: Apache-2.0
"""What a build says that int4 costs, against transformers with the model's own weights and with the bundle's decoded ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from bespoke import Lora, Personalizer, Training
from bespoke.compiler.general import general_texts
from bespoke.compiler.quantization_cost import POSITIONS, losses_on_text
from bespoke.data.text import Tokenizer
from bespoke.model.compressed_tensors import open_weights
from bespoke.model.convert import convert
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from tests.support.models import TINY_FAMILIES, dequantized_reference, tiny_model


@pytest.fixture
def stories(data_folder: Path) -> Path:
    return data_folder / "models" / "stories260K"


def test_a_build_says_what_int4_costs_a_pretrained_model(stories: Path, tmp_path: Path) -> None:
    training = Training(sequence_lengths=(64,))
    _, report = Personalizer(stories, "mesp", "torch", context=64, training=training, data=None).build_with_report(
        tmp_path / "b"
    )
    cost = report.quantization
    original = AutoModelForCausalLM.from_pretrained(stories, dtype=torch.float32)
    decoded = dequantized_reference(stories)
    matrices = {
        name: value.numpy()
        for name, value in original.state_dict().items()
        if value.ndim == 2 and "lm_head" not in name
    }
    others = decoded.state_dict()
    wrong = sum(
        float(np.square(others[name].numpy() - value, dtype=np.float64).sum()) for name, value in matrices.items()
    )
    size = sum(float(np.square(value, dtype=np.float64).sum()) for value in matrices.values())
    assert (cost.error.quantized, cost.error.kept) == (sum(value.size for value in matrices.values()), 0)
    assert cost.error.relative == pytest.approx((wrong / size) ** 0.5, rel=1e-4)
    rows = general_texts(Tokenizer.open(stories), 64, original.config.vocab_size)
    if rows is None:  # this vocabulary knows too few of the tokens of the texts
        assert (cost.loss_before, cost.loss_after) == (None, None)
        return
    expected = [mean_loss(model, rows) for model in (original, decoded)]
    assert [cost.loss_before, cost.loss_after] == pytest.approx(expected, rel=1e-4)
    assert f"{expected[0]:.3f} -> {expected[1]:.3f} nats a token" in str(cost)


def mean_loss(model: torch.nn.Module, rows: object) -> float:
    """Row by row from the last one, of as many as have at most 512 positions together."""
    total, positions = 0.0, 0
    for index in reversed(range(len(rows))):  # type: ignore[arg-type]
        tokens = torch.from_numpy(rows.rows(index).tokens.astype(np.int64))  # type: ignore[attr-defined]
        if positions and positions + len(tokens) - 1 > POSITIONS:
            break
        with torch.no_grad():
            logits = model(tokens[None, :-1]).logits[0]
        total += float(torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="sum"))
        positions += len(tokens) - 1
    return total / positions


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_both_losses_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    from bespoke.data.rows import TokenRow, TokenRows

    folder = tiny_model(family, tmp_path / "model")
    config = read_config(folder)
    random = np.random.default_rng(0)
    rows = TokenRows.from_rows(
        TokenRow(
            random.integers(0, config.vocab_size, size).astype(np.int32), np.r_[0, np.ones(size - 1)].astype(np.uint8)
        )
        for size in (17, 9, 12)
    )
    files = convert(folder, config, tmp_path / "weights", context=64)
    found = losses_on_text(folder, ModelSpec(config, Lora(rank=1)), open_weights(folder), files, rows)
    original = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    assert found == pytest.approx((mean_loss(original, rows), mean_loss(dequantized_reference(folder), rows)), rel=1e-5)
    assert losses_on_text(folder, ModelSpec(config, Lora(rank=1)), open_weights(folder), files, None) is None
