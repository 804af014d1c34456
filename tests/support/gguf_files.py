# SPDX-License-Identifier: Apache-2.0
"""GGUF files as llama.cpp's convert_hf_to_gguf.py makes them, written by the package gguf from a model of transformers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM

ARCHITECTURES = {"llama": "llama", "llama3": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}
LINEARS = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}
OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
NORMS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
}
GEMMA_NORMS = {
    **NORMS,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

Kind = gguf.GGMLQuantizationType


def gguf_name(name: str, gemma: bool) -> str:
    """As convert_hf_to_gguf.py names the tensors of these families."""
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    found = re.fullmatch(r"model\.layers\.(\d+)\.(?:self_attn\.|mlp\.)?(\w+)\.(weight|bias)", name)
    assert found, name
    block, part, kind = found.groups()
    return f"blk.{block}.{({**LINEARS, **(GEMMA_NORMS if gemma else NORMS)})[part]}.{kind}"


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def write_gguf(
    folder: Path,
    path: Path,
    kind_of: Callable[[str, tuple[int, ...]], Kind],
    *,
    licence: str | None = "apache-2.0",
    **fields: Any,
) -> Path:
    """The model of `folder` at `path`. `kind_of`: the type of a tensor. `fields`: metadata, with __ for dots."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = model.config
    family = config.model_type
    at = ARCHITECTURES[family]
    writer = gguf.GGUFWriter(path, at)
    if licence is not None:
        writer.add_license(licence)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if family == "gemma3_text":
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, head_dim))
    for name, value in fields.items():
        add = (
            writer.add_array
            if isinstance(value, list)
            else writer.add_string
            if isinstance(value, str)
            else writer.add_uint32
        )
        add(name.replace("__", "."), value)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weights in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weights.numpy()
        part = name.split(".")[-2]
        if family == "llama" and part in heads:
            values = permuted(values, heads[part])
        if family == "gemma3_text" and "norm" in name:
            values = values + np.float32(1)
        kind = kind_of(name, values.shape)
        stored = gguf.quants.quantize(np.ascontiguousarray(values), kind)
        writer.add_tensor(gguf_name(name, family == "gemma3_text"), stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llama3_divisors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    """`rope_freqs.weight`, as LlamaModel.generate_extra_tensors of convert_hf_to_gguf.py works it out."""
    base, factor = rope["rope_theta"], rope["factor"]
    low, high, length = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    divisors = []
    for frequency in 1.0 / (base ** (np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)):
        wavelength = 2 * np.pi / frequency
        if wavelength < length / high:
            divisors.append(1.0)
        elif wavelength > length / low:
            divisors.append(factor)
        else:
            smooth = (length / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)
