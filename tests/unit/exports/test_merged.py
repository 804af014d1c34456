# SPDX-License-Identifier: Apache-2.0
"""The merged model as transformers loads it: what peft computes with the decoded weights and the adapter, rounded to float16."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from bespoke import PersonalModel
from bespoke.errors import AdapterError
from tests.native.family_folders import VOCABULARY, family, folder
from tests.support.models import dequantized_reference, tiny_model
from tests.unit.adapter.other_engines import model

__all__ = ["family", "folder", "model"]

TOKENS = torch.tensor([[3 + (7 * row + 13 * place) % (VOCABULARY - 3) for place in range(24)] for row in range(4)])


def logits_of(network: Any) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = network(input_ids=TOKENS).logits.numpy()
        return found


def test_transformers_computes_with_it_what_peft_does_with_the_adapter(
    model: PersonalModel, folder: Path, tmp_path: Path
) -> None:
    import peft

    original = shutil.copytree(folder / "model", tmp_path / "model")
    (original / "tokenizer.json").write_text("{}")
    out = model.export_merged(tmp_path / "merged", original)
    assert {path.name for path in out.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json", "LICENSE"}
    assert {str(tensor.dtype) for tensor in load_file(out / "model.safetensors").values()} == {"float16"}
    merged = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager")
    base = dequantized_reference(folder / "model")
    without = logits_of(base)
    expected = logits_of(peft.PeftModel.from_pretrained(base, str(folder / "adapters" / "0")))
    assert np.linalg.norm(expected - without) > 0.05 * np.linalg.norm(without)  # an adapter with an effect
    assert np.linalg.norm(logits_of(merged) - expected) <= 2e-3 * np.linalg.norm(expected)


def test_without_an_adapter_it_is_the_base_and_one_is_asked_for(folder: Path, tmp_path: Path) -> None:
    with PersonalModel.open(folder / "bundle", tmp_path / "state") as opened:
        with pytest.raises(AdapterError, match="no training was accepted"):
            opened.export_merged(tmp_path / "merged", folder / "model")
        assert not (tmp_path / "merged").exists()
        out = opened.export_merged(tmp_path / "merged", folder / "model", base=True)
    merged = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager")
    expected = logits_of(dequantized_reference(folder / "model"))
    assert np.linalg.norm(logits_of(merged) - expected) <= 2e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_only_the_bundles_own_model_and_a_place_for_it_are_taken(
    model: PersonalModel, folder: Path, tmp_path: Path
) -> None:
    other = tiny_model("llama", tmp_path / "other", seed=5)
    with pytest.raises(AdapterError, match="another model"):
        model.export_merged(tmp_path / "merged", other)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("Dear")
    with pytest.raises(AdapterError, match="something else in it"):
        model.export_merged(tmp_path / "mine", folder / "model")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "other", "state"]
    first = model.export_merged(tmp_path / "merged", folder / "model")
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    again = model.export_merged(tmp_path / "merged", folder / "model")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == before


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_a_number_that_float16_does_not_hold_is_named(folder: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "large"
    adapter.mkdir()
    config = json.loads((folder / "adapters" / "0" / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "adapters" / "0" / "adapter_model.safetensors")
    save_file(
        {name: np.full_like(tensor, 1e3) for name, tensor in tensors.items()}, adapter / "adapter_model.safetensors"
    )
    with PersonalModel.open(folder / "bundle", tmp_path / "state") as opened:
        opened.import_adapter(adapter, trust_base=True)
        with pytest.raises(
            AdapterError, match=r"tensor model.layers.0.*: got a number of size 8e\+06; expected at most 65504"
        ):
            opened.export_merged(tmp_path / "merged", folder / "model")
    assert not (tmp_path / "merged").exists()
