# SPDX-License-Identifier: Apache-2.0
"""Adapters for other engines by their own readers: mlx-lm computes with one what peft does, gguf reads what llama.cpp expects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bespoke import PersonalModel
from bespoke.errors import AdapterError, ConfigError
from tests.native.family_folders import family, folder
from tests.support.gguf_files import LINEARS, permuted
from tests.unit.adapter.other_engines import TOKENS, effect_in_peft, for_mlx_lm, model

__all__ = ["family", "folder", "model"]

RANK, ALPHA = 4, 8.0


def test_an_adapter_for_mlx_does_in_mlx_lm_what_it_does_in_peft(
    model: PersonalModel, folder: Path, tmp_path: Path
) -> None:
    import mlx.core as mx
    from mlx_lm.tuner.utils import load_adapters
    from mlx_lm.utils import load_model

    exported = model.export_adapter(tmp_path / "mlx", format="mlx")
    without, expected = effect_in_peft(folder)
    original, _ = load_model(for_mlx_lm(folder / "model", tmp_path / "model"))
    before = np.array(original(mx.array(TOKENS)).astype(mx.float32))
    np.testing.assert_allclose(before, without, atol=1e-3)  # it is the same model there
    found = np.array(load_adapters(original, str(exported))(mx.array(TOKENS)).astype(mx.float32)) - before
    assert np.linalg.norm(found - expected) <= 1e-3 * np.linalg.norm(expected)
    changed = (without + expected).argmax(-1) != without.argmax(-1)
    assert changed.mean() >= 0.1  # share of greedy tokens that the adapter changes


ARCHITECTURES = {"llama": "llama", "llama3": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}


def test_an_adapter_for_llama_cpp_is_read_by_gguf(
    model: PersonalModel, folder: Path, family: str, tmp_path: Path
) -> None:
    from gguf import GGUFReader
    from transformers import AutoConfig

    reader = GGUFReader(model.export_adapter(tmp_path / "gguf", format="gguf") / "adapter.gguf")
    said = {name: field.contents() for name, field in reader.fields.items()}
    assert said["general.type"] == "adapter"
    assert said["general.architecture"] == ARCHITECTURES[family]
    assert said["adapter.type"] == "lora"
    assert said["adapter.lora.alpha"] == ALPHA
    config = AutoConfig.from_pretrained(folder / "model")
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    expected = {}
    for key, weights in load_file(folder / "adapters" / "0" / "adapter_model.safetensors").items():
        *_, block, _, linear, side, _ = key.split(".")
        turned = family in ("llama", "llama3") and side == "lora_B" and linear in heads
        name = f"blk.{block}.{LINEARS[linear]}.weight.{side.lower()}"
        expected[name] = permuted(weights, heads[linear]) if turned else weights
    found = {tensor.name: tensor.data for tensor in reader.tensors}
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        np.testing.assert_array_equal(found[name], weights, err_msg=name)
    assert all(tensor.data_offset % 32 == 0 for tensor in reader.tensors)


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_an_export_replaces_one_of_its_own_format_and_nothing_else(model: PersonalModel, tmp_path: Path) -> None:
    for form in ("peft", "mlx", "gguf"):
        first = {path.name: path.read_bytes() for path in model.export_adapter(tmp_path / form, format=form).iterdir()}
        again = {path.name: path.read_bytes() for path in model.export_adapter(tmp_path / form, format=form).iterdir()}
        assert again == first
    with pytest.raises(AdapterError, match="other files"):
        model.export_adapter(tmp_path / "gguf", format="peft")
    with pytest.raises(ConfigError, match="format"):
        model.export_adapter(tmp_path / "other", format="onnx")  # type: ignore[arg-type]
