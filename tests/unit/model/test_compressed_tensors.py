# SPDX-License-Identifier: Apache-2.0
"""Folders that the package compressed-tensors packed as symmetric int4: its codes and scales come in without a changed bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from bespoke import Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.errors import ModelError, UnsupportedModel
from bespoke.format.tensors import map_tensors
from bespoke.model.compressed_tensors import open_weights
from bespoke.model.convert import convert
from bespoke.model.families import read_config
from bespoke.model.quantize import dequantize
from tests.support.models import tiny_model

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
WIDE = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 1}


def packed(
    folder: Path, group: int | None, dtype: torch.dtype = torch.bfloat16, **changes: object
) -> dict[str, torch.Tensor]:
    """Packs the linears of a tiny model in `folder` by the owner's package. Returns what that package decodes them to."""
    tiny_model("llama", folder, **WIDE)
    strategy = {"strategy": "channel"} if group is None else {"strategy": "group", "group_size": group}
    arguments = QuantizationArgs(num_bits=4, type="int", symmetric=True, **strategy)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    tensors = load_file(folder / "model.safetensors")
    decoded = {}
    for name in list(tensors):
        if name.split(".")[-2] not in LINEARS:
            continue
        weight = tensors.pop(name)
        grouped = weight.reshape(weight.shape[0], -1, group or weight.shape[1])
        scale = (grouped.abs().amax(-1) / 7.5).to(dtype)
        state = {
            "weight": weight,
            "weight_scale": scale,
            "weight_zero_point": torch.zeros_like(scale, dtype=torch.int8),
        }
        made = PackedQuantizationCompressor.compress(state, scheme)
        decoded[name] = PackedQuantizationCompressor.decompress(
            {**made, "weight_scale": made["weight_scale"].float()}, scheme
        )["weight"]
        base = name.removesuffix("weight")
        tensors |= {base + part: value for part, value in made.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    document = json.loads((folder / "config.json").read_text())
    config = QuantizationConfig(
        config_groups={"group_0": scheme}, format="pack-quantized", quantization_status="compressed", ignore=["lm_head"]
    )
    document["quantization_config"] = config.model_dump(mode="json") | changes
    (folder / "config.json").write_text(json.dumps(document))
    return decoded


@pytest.mark.parametrize("group", [32, 64, None], ids=["groups of 32", "groups of 64", "channels"])
def test_the_codes_and_scales_are_those_of_the_folder(group: int | None, tmp_path: Path) -> None:
    decoded = packed(tmp_path / "model", group)
    weights = open_weights(tmp_path / "model")
    files = convert(tmp_path / "model", read_config(tmp_path / "model"), tmp_path / "weights", context=8)
    stored = map_tensors(files["block_00"])
    for name, expected in decoded.items():
        linear = name.split(".")[-2]
        found = dequantize(stored[f"{linear}.codes"], stored[f"{linear}.scales"], expected.shape[1])
        np.testing.assert_array_equal(found, expected.numpy(), err_msg=name)
        np.testing.assert_array_equal(weights.rows(name, 3, 9), expected.numpy()[3:9])


def test_a_scale_that_fp16_cannot_hold_has_its_rows_quantized(tmp_path: Path) -> None:
    decoded = packed(tmp_path / "model", 32, torch.float32)
    weights = open_weights(tmp_path / "model")
    name = "model.layers.0.self_attn.q_proj.weight"
    assert weights.int4_rows(name, 0, 64) is None
    np.testing.assert_array_equal(weights.rows(name, 0, 64), decoded[name].numpy())


def test_a_bundle_is_built_whose_golden_values_hold_and_which_can_be_merged(tmp_path: Path) -> None:
    decoded = packed(tmp_path / "model", 32)
    training = Training(sequence_lengths=(16,), batch_size=1, steps=3)
    bundle = Personalizer(tmp_path / "model", "mesp", "torch", context=32, training=training, text=False).build(
        tmp_path / "bundle"
    )
    with read_bundle(bundle) as made:
        assert made.manifest.model.architecture == "llama"
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        merged = model.export_merged(tmp_path / "merged", tmp_path / "model", base=True)
    network = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    for name, expected in decoded.items():
        np.testing.assert_array_equal(network.state_dict()[name].numpy(), expected.half().float().numpy())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"format": "int-quantized"}, "int-quantized", id="another format"),
        pytest.param({"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme", id="a quantized cache"),
        pytest.param({"config_groups": {"g": {"weights": {"num_bits": 8}}}}, "weights.num_bits", id="eight bits"),
        pytest.param(
            {"config_groups": {"g": {"weights": {"num_bits": 4, "symmetric": False}}}}, "symmetric", id="asymmetric"
        ),
        pytest.param(
            {"config_groups": {"g": {"weights": {"num_bits": 4}, "input_activations": {"num_bits": 8}}}},
            "input_activations",
            id="quantized activations",
        ),
        pytest.param({"config_groups": []}, "config_groups", id="no groups"),
    ],
)
def test_other_forms_are_refused_by_name(change: dict[str, object], words: str, tmp_path: Path) -> None:
    packed(tmp_path / "model", 32, **change)
    with pytest.raises(UnsupportedModel, match=words):
        read_config(tmp_path / "model")


@pytest.mark.parametrize(
    ("part", "value", "error"),
    [
        pytest.param("weight_shape", torch.tensor([64, 60]), UnsupportedModel, id="rows that no group fills"),
        pytest.param("weight_scale", torch.full((64, 2), float("nan"), dtype=torch.bfloat16), ModelError, id="NaN"),
        pytest.param("weight_scale", torch.ones(64, 3, dtype=torch.bfloat16), UnsupportedModel, id="three groups"),
        pytest.param("weight_packed", torch.ones(64, 8), ModelError, id="floats for words"),
        pytest.param(
            "weight_g_idx", torch.zeros(64, dtype=torch.int32), UnsupportedModel, id="groups in another order"
        ),
    ],
)
def test_damaged_tensors_are_errors(part: str, value: torch.Tensor, error: type, tmp_path: Path) -> None:
    packed(tmp_path / "model", 32)
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    tensors[f"model.layers.0.self_attn.q_proj.{part}"] = value
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(error):
        convert(tmp_path / "model", read_config(tmp_path / "model"), tmp_path / "weights", context=8)
