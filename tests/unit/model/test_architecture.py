# SPDX-License-Identifier: Apache-2.0
"""config.json against transformers' own reading of it; and what the canonical decoder cannot be is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from bespoke.errors import ModelError, UnsupportedModel
from bespoke.model.architecture import ModelConfig
from bespoke.model.families import read_config
from tests.support.full_size import PUBLISHED
from tests.support.models import TINY_FAMILIES, tiny_config, tiny_model


def write(folder: Path, raw: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    return folder


def agrees(config: ModelConfig, folder: Path) -> None:
    """Every number against transformers' configuration and, for scales and linears, against modules made from it."""
    theirs = AutoConfig.from_pretrained(folder)
    theirs = getattr(theirs, "text_config", None) or theirs
    assert config.family == theirs.model_type
    assert config.hidden_size == theirs.hidden_size
    assert config.intermediate_size == theirs.intermediate_size
    assert config.num_layers == theirs.num_hidden_layers
    assert config.num_heads == theirs.num_attention_heads
    assert config.num_kv_heads == theirs.num_key_value_heads
    assert config.head_dim == getattr(theirs, "head_dim", theirs.hidden_size // theirs.num_attention_heads)
    assert config.vocab_size == theirs.vocab_size
    assert config.norm_eps == theirs.rms_norm_eps
    assert config.max_positions == theirs.max_position_embeddings
    assert config.tied_head == theirs.tie_word_embeddings
    kinds = getattr(theirs, "layer_types", None) or ["full_attention"] * theirs.num_hidden_layers
    assert config.sliding_layers == tuple(kind == "sliding_attention" for kind in kinds)
    assert config.sliding_window == (theirs.sliding_window if any(config.sliding_layers) else None)
    rope = theirs.rope_parameters
    blocks = {"rope": rope.get("full_attention", rope), "rope_local": rope.get("sliding_attention")}
    for name, block in blocks.items():
        ours = getattr(config, name)
        assert (ours is None) == (block is None)
        if block is not None:
            assert (ours.kind, ours.theta) == (block["rope_type"], block["rope_theta"])
            assert (ours.factor, ours.low_freq_factor) == (block.get("factor"), block.get("low_freq_factor"))
            assert ours.high_freq_factor == block.get("high_freq_factor")
            assert ours.original_max_positions == block.get("original_max_position_embeddings")


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_tiny_models_are_read_as_transformers_reads_them(family: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path)
    config = read_config(folder)
    agrees(config, folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    layer = model.model.layers[0]
    assert config.attention_scale == layer.self_attn.scaling
    assert config.embedding_scale == getattr(model.model.embed_tokens, "scalar_embed_scale", 1.0)
    assert config.qkv_bias == (layer.self_attn.q_proj.bias is not None)
    assert config.qk_norm == hasattr(layer.self_attn, "q_norm")
    assert config.output_norms == hasattr(layer, "pre_feedforward_layernorm")
    for name, shape in config.linear_shapes.items():
        module = getattr(layer.self_attn, name, None) or getattr(layer.mlp, name)
        assert tuple(module.weight.shape) == shape


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    agrees(read_config(write(tmp_path, PUBLISHED[name])), tmp_path)


def test_gemma_fields_left_out_take_the_defaults_of_transformers(tmp_path: Path) -> None:
    write(tmp_path, {"model_type": "gemma3_text", "hidden_size": 1152})
    agrees(read_config(tmp_path), tmp_path)


def test_qwen_with_sliding_windows_keeps_them_for_its_last_layers(tmp_path: Path) -> None:
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}
    tiny_config("qwen2", **window).save_pretrained(tmp_path)
    config = read_config(tmp_path)
    agrees(config, tmp_path)
    assert config.sliding_layers == (False, False, True)
    assert config.rope_local is None


@pytest.mark.parametrize("old", [True, False])
def test_both_spellings_of_rope_settings_give_the_same(old: bool, tmp_path: Path) -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    raw = {key: value for key, value in PUBLISHED["Llama-3.2-1B"].items() if not key.startswith("rope")}
    if old:
        raw |= {"rope_theta": 7e4, "rope_scaling": scaling | {"type": "llama3"}}
    else:
        raw |= {"rope_parameters": scaling | {"rope_type": "llama3", "rope_theta": 7e4}}
    config = read_config(write(tmp_path, raw))
    agrees(config, tmp_path)
    assert config.rope.original_max_positions == config.max_positions


@pytest.mark.parametrize(("dtype", "expected"), [("float32", 3072**0.5), ("bfloat16", 55.5), ("float16", 55.4375)])
def test_gemma_embedding_scale_is_rounded_to_the_dtype_of_the_weights(
    dtype: str, expected: float, tmp_path: Path
) -> None:
    raw = PUBLISHED["gemma-3-1b-it"] | {"hidden_size": 3072, "torch_dtype": dtype}
    assert read_config(write(tmp_path, raw)).embedding_scale == pytest.approx(expected, rel=1e-7)


def test_dtype_of_the_weights_is_found_in_their_header_where_the_configuration_is_silent(tmp_path: Path) -> None:
    folder = tiny_model("gemma3_text", tmp_path, dtype="bfloat16", hidden_size=72, num_attention_heads=4)
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert raw.pop("dtype") == "bfloat16"
    write(folder, raw)
    assert read_config(folder).embedding_scale == 8.5


def test_a_head_that_differs_from_the_embedding_is_not_tied_even_if_the_configuration_says_so(tmp_path: Path) -> None:
    folder = tiny_model("qwen2", tmp_path)
    assert read_config(folder).tied_head
    tensors = load_file(folder / "model.safetensors")
    same = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors | {"lm_head.weight": same}, folder / "model.safetensors", {"format": "pt"})
    assert read_config(folder).tied_head
    save_file(tensors | {"lm_head.weight": same + 1}, folder / "model.safetensors", {"format": "pt"})
    assert not read_config(folder).tied_head


_REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "another architecture": ("Qwen3-0.6B", {"model_type": "mixtral"}, "model_type"),
    "no architecture": ("Qwen3-0.6B", {"model_type": None}, "model_type"),
    "mixture of experts": ("Qwen3-0.6B", {"model_type": "qwen3_moe"}, "model_type"),
    "code of its own": ("Llama-3.2-1B", {"auto_map": {"AutoModel": "m.M"}}, "auto_map"),
    "quantized already": ("Llama-3.2-1B", {"quantization_config": {"bits": 4}}, "quantization_config"),
    "output bias": ("Llama-3.2-1B", {"attention_bias": True}, "attention_bias"),
    "MLP bias": ("Llama-3.2-1B", {"mlp_bias": True}, "mlp_bias"),
    "another activation": ("Llama-3.2-1B", {"hidden_act": "gelu"}, "hidden_act"),
    "another activation in Gemma": ("gemma-3-1b-it", {"hidden_activation": "silu"}, "hidden_activation"),
    "another RoPE": ("Qwen3-0.6B", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "RoPE"),
    "part of a head": ("Llama-3.2-1B", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "capped logits": ("gemma-3-1b-it", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    "capped scores": ("gemma-3-1b-it", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    "both directions": ("gemma-3-1b-it", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    "heads that do not divide": ("Llama-3.2-1B", {"num_key_value_heads": 5}, "num_key_value_heads"),
    "an odd head": ("Llama-3.2-1B", {"head_dim": 63}, "head_dim"),
    "layers of another kind": ("Qwen3-0.6B", {"layer_types": ["linear_attention"] * 28}, "layer_types"),
    "images without text": ("gemma-3-1b-it", {"model_type": "gemma3"}, "model_type"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_what_the_decoder_cannot_be_is_refused_by_name(case: str, tmp_path: Path) -> None:
    base, change, field = _REFUSED[case]
    with pytest.raises(UnsupportedModel) as caught:
        read_config(write(tmp_path, PUBLISHED[base] | change))
    assert field in caught.value.subject
    assert "config.json" in caught.value.subject
    assert caught.value.expected
    if field == "model_type" and case != "images without text":
        assert all(name in caught.value.expected for name in ("llama", "qwen2", "qwen3", "gemma3"))


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"layer_types": ["x"]}, '["x"]'),
        ({"attention_bias": True}, "true (biases on the attention's output)"),
        ({"hidden_size": [None]}, "[null]"),
        ({"rope_scaling": [True]}, "[true]"),
        ({"hidden_act": "gelu"}, "gelu"),
    ],
)
def test_values_are_shown_as_config_json_has_them(change: dict[str, Any], got: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read_config(write(tmp_path, PUBLISHED["Qwen2.5-0.5B"] | change))
    assert caught.value.got == got


@pytest.mark.parametrize("value", [0, -1, 2.5, "64", True, [], 10**30])
def test_a_size_that_is_no_size_is_an_error_that_names_it(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read_config(write(tmp_path, PUBLISHED["Qwen2.5-0.5B"] | {"hidden_size": value}))
    assert "hidden_size" in caught.value.subject


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 5000])
def test_a_damaged_configuration_is_an_error_that_names_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.json"):
        read_config(tmp_path)


def test_a_folder_without_configuration_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        read_config(tmp_path)


def test_a_configuration_survives_json(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, PUBLISHED["gemma-3-1b-it"]))
    assert ModelConfig.model_validate_json(config.model_dump_json()) == config
