# SPDX-License-Identifier: Apache-2.0
"""Model folders of published size with random weights, for benchmarks: memory and speed do not depend on the values."""

from __future__ import annotations

import json
import shutil
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

_QWEN25: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "num_key_value_heads": 2,
    "use_sliding_window": False,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "torch_dtype": "bfloat16",
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": _QWEN25
    | {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "Qwen2.5-1.5B": _QWEN25
    | {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
    "Qwen2.5-3B": _QWEN25
    | {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16},
    "Qwen3-0.6B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
    "Llama-3.2-1B": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
    "TinyLlama-1.1B": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
    "gemma-3-1b-it": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "vocab_size": 262144,
        "hidden_size": 1152,
        "intermediate_size": 6912,
        "num_hidden_layers": 26,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "rope_local_base_freq": 10_000,
        "query_pre_attn_scalar": 256,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 32768,
        "torch_dtype": "bfloat16",
    },
}
_POOL = 2**22 + 17  # numbers drawn once and laid end to end; odd, so that rows of a tensor differ


def full_size_folder(name: str, folder: Path, *, tokenizer: Path | None = None, **overrides: Any) -> Path:
    """Write the folder `name` of PUBLISHED as bf16, one file, or find it already there; returns `folder`.

    Weights are normal with deviation 0.02, norms near 1 (near 0 for Gemma's 1 + w), biases with deviation 0.1. At most
    a few MB are in memory. `tokenizer` is a folder whose tokenizer files are copied in.
    """
    config = PUBLISHED[name] | overrides
    folder = Path(folder)
    text = json.dumps(config, indent=2, sort_keys=True)
    marker = folder / "config.json"  # written last
    if marker.is_file() and marker.read_text(encoding="utf-8") == text:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "LICENSE").write_text("Random weights, made for benchmarks; no rights reserved.\n", encoding="utf-8")
    for path in sorted(tokenizer.glob("tokenizer*.json")) if tokenizer else []:
        shutil.copyfile(path, folder / path.name)
    _write(folder / "model.safetensors", _shapes(config), gemma=config["model_type"] == "gemma3_text")
    marker.write_text(text, encoding="utf-8")
    return folder


def parameter_count(name: str) -> int:
    return sum(prod(shape) for shape in _shapes(PUBLISHED[name]).values())


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape, as transformers names them."""
    d, f, heads, kv = (
        config[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    )
    head_dim = config.get("head_dim", d // heads)
    gemma, kind = config["model_type"] == "gemma3_text", config["model_type"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], d)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for linear, rows in (("q_proj", heads), ("k_proj", kv), ("v_proj", kv)):
            shapes[f"{at}self_attn.{linear}.weight"] = (rows * head_dim, d)
            if kind == "qwen2":
                shapes[f"{at}self_attn.{linear}.bias"] = (rows * head_dim,)
        shapes[f"{at}self_attn.o_proj.weight"] = (d, heads * head_dim)
        shapes[f"{at}mlp.gate_proj.weight"] = shapes[f"{at}mlp.up_proj.weight"] = (f, d)
        shapes[f"{at}mlp.down_proj.weight"] = (d, f)
        norms = ["input_layernorm", "post_attention_layernorm"]
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else []
        shapes |= {f"{at}{norm}.weight": (d,) for norm in norms}
        if kind in ("qwen3", "gemma3_text"):
            shapes |= {f"{at}self_attn.{norm}.weight": (head_dim,) for norm in ("q_norm", "k_norm")}
    shapes["model.norm.weight"] = (d,)
    if not config.get("tie_word_embeddings", gemma):
        shapes["lm_head.weight"] = (config["vocab_size"], d)
    return shapes


def _write(path: Path, shapes: dict[str, tuple[int, ...]], *, gemma: bool) -> None:
    normal = np.random.Generator(np.random.Philox(0)).standard_normal(_POOL, dtype=np.float32)
    weights = _bfloat16(normal * np.float32(0.02))
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    at = 0
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            left = prod(shape)
            if len(shape) == 1:
                small = normal[:left] * np.float32(0.1)
                _bfloat16(small + np.float32("norm" in name and not gemma)).tofile(file)
                continue
            while left:
                part = weights[at : at + left]
                part.tofile(file)
                left -= part.size
                at = (at + part.size) % _POOL


def _bfloat16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
