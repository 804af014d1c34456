# SPDX-License-Identifier: Apache-2.0
"""Adapters of pretrained models out and in: peft, mlx-lm and llama.cpp compute with one what the device core does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bespoke
from bespoke import PersonalModel
from tests.real_model.conftest import RealModel
from tests.support.checks import record_check
from tests.support.llama_cpp_lab import LlamaCpp
from tests.unit.adapter.other_engines import for_mlx_lm

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real model")]


@pytest.fixture(scope="module")
def adapter(real_model: RealModel) -> Path:
    """A random one that peft has written, strong enough to change greedy tokens."""
    folder = real_model.folder / "adapter"
    chance = torch.Generator().manual_seed(0)
    with real_model.in_peft() as adapted:
        for name, value in adapted.named_parameters():
            if "lora_" in name:
                value.data = torch.randn(value.shape, generator=chance) * (0.05 if "lora_A" in name else 0.02)
        adapted.save_pretrained(str(folder))
    return folder


@pytest.fixture
def model(real_model: RealModel, adapter: Path, tmp_path: Path) -> Any:
    with PersonalModel.open(real_model.bundle, tmp_path / "state") as opened:
        opened.import_adapter(adapter, trust_base=True)
        yield opened


def logits(real_model: RealModel, adapter: Path | None, tokens: list[int]) -> np.ndarray:
    """float32 [T, V], by transformers and peft."""
    from peft import PeftModel

    network = real_model.network if adapter is None else PeftModel.from_pretrained(real_model.network, str(adapter))
    with torch.no_grad():
        found: np.ndarray = network(input_ids=torch.tensor([tokens])).logits[0].numpy()
    if adapter is not None:
        network.unload()
    return found


def test_one_of_peft_goes_in_and_comes_out_as_it_was(
    model: PersonalModel, real_model: RealModel, adapter: Path, tmp_path: Path
) -> None:
    tokens, prompt = real_model.row()
    (score,) = model.score(tokens[:prompt], [tokens[prompt:]])
    here = float(score.log_probability)
    exported = model.export_adapter(tmp_path / "peft")
    expected, found = logits(real_model, adapter, tokens), logits(real_model, exported, tokens)
    np.testing.assert_array_equal(found, expected)
    chances = torch.log_softmax(torch.from_numpy(expected[prompt - 1 : -1]), -1)
    there = float(chances[torch.arange(len(chances)), torch.tensor(tokens[prompt:])].sum())
    assert abs(here - there) / len(chances) <= 1e-4
    changed = float((expected.argmax(-1) != logits(real_model, None, tokens).argmax(-1)).mean())
    assert changed >= 0.1
    record_check(
        f"{real_model.name} with an adapter of peft, core against peft",
        {
            "nats a token apart": f"{abs(here - there) / len(chances):.1e}",
            "greedy tokens that it changes": f"{changed:.0%}",
        },
    )


def test_one_of_mlx_lm_goes_out_and_in(
    model: PersonalModel, real_model: RealModel, adapter: Path, tmp_path: Path
) -> None:
    import mlx.core as mx
    from mlx_lm.tuner.utils import load_adapters
    from mlx_lm.utils import load_model

    tokens, prompt = real_model.row()
    exported = model.export_adapter(tmp_path / "mlx", format="mlx")
    real_model.network.save_pretrained(tmp_path / "saved")
    there, _ = load_model(for_mlx_lm(tmp_path / "saved", tmp_path / "model"))
    before = np.array(there(mx.array([tokens])).astype(mx.float32))[0]
    found = np.array(load_adapters(there, str(exported))(mx.array([tokens])).astype(mx.float32))[0] - before
    expected = logits(real_model, adapter, tokens) - logits(real_model, None, tokens)
    share = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    assert share <= 1e-2
    (score,) = model.score(tokens[:prompt], [tokens[prompt:]])
    with PersonalModel.open(real_model.bundle, tmp_path / "another") as another:
        another.import_adapter(exported, trust_base=True)
        (again,) = another.score(tokens[:prompt], [tokens[prompt:]])
    assert again.log_probability == pytest.approx(score.log_probability, abs=1e-4)
    record_check(
        f"{real_model.name} with an adapter for mlx-lm, mlx-lm against peft", {"of its effect": f"{share:.1e}"}
    )


def test_llama_cpp_computes_with_base_and_adapter_what_peft_does(
    model: PersonalModel, real_model: RealModel, adapter: Path, tmp_path: Path
) -> None:
    """llama.cpp rounds activations to eight bits."""
    tokens, _ = real_model.row()
    tokens = tokens[:24]
    exported = model.export_adapter(tmp_path / "gguf", format="gguf") / "adapter.gguf"
    base = bespoke.export_base(real_model.bundle, tmp_path / "base")
    for name, ours, theirs in (("base", None, None), ("adapter", exported, adapter)):
        expected = torch.log_softmax(torch.from_numpy(logits(real_model, theirs, tokens)).double(), -1).numpy()
        network = LlamaCpp(base, ours)
        found = np.array(
            [network.log_probabilities(tokens[: end + 1], expected.shape[-1]) for end in range(len(tokens))]
        )
        shared = np.exp(expected) * np.where(np.isfinite(found), expected - found, 0.0)
        divergence = float(shared.sum(-1).mean())
        same = float((found.argmax(-1) == expected.argmax(-1)).mean())
        assert divergence <= 0.02
        assert same >= 0.75  # a random adapter leaves many tokens near a tie
        record_check(
            f"{real_model.name}, {name}, llama.cpp against transformers and peft",
            {"KL, nats a token": f"{divergence:.1e}", "greedy tokens alike": f"{same:.0%}"},
        )
