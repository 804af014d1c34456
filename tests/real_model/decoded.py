# SPDX-License-Identifier: Apache-2.0
"""A model of transformers that has the weights of a bundle, read by the package safetensors and decoded here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support.models import QUANTIZED_LINEARS

OF_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
LLAMA_NORMS = {"input_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
GEMMA_NORMS = {
    "input_norm": "input_layernorm",
    "attention_output_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_output_norm": "post_feedforward_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
}


def decoded_model(gguf: Path, bundle: Path) -> Any:
    """float32, eager. `gguf` gives the configuration, as transformers reads it."""
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    gemma = config.model_type.startswith("gemma")
    norms, one = (GEMMA_NORMS, np.float32(1)) if gemma else (LLAMA_NORMS, np.float32(0))  # transformers computes 1 + w
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval().requires_grad_(False)
    state = {"model.embed_tokens.weight": _matrix(load_file(bundle / "weights/embedding.safetensors"), "table")}
    state["model.norm.weight"] = load_file(bundle / "weights/head.safetensors")["norm"] - one
    for layer in range(config.num_hidden_layers):
        stored = load_file(bundle / f"weights/block_{layer:02d}.safetensors")
        at = f"model.layers.{layer}"
        for name in QUANTIZED_LINEARS:
            state[f"{at}.{'self_attn' if name in OF_ATTENTION else 'mlp'}.{name}.weight"] = _matrix(stored, name)
        state |= {f"{at}.{theirs}.weight": stored[ours] - one for ours, theirs in norms.items()}
    tensors = {name: torch.from_numpy(value.copy()) for name, value in state.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"}  # tied
    assert not unexpected
    model.tie_weights()
    return model


def _matrix(stored: dict[str, np.ndarray], name: str) -> np.ndarray:
    """(nibble - 8) * scale, low nibble first, a scale for each 32."""
    codes, scales = stored[f"{name}.codes"], stored[f"{name}.scales"].astype(np.float32)
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1).astype(np.float32) - 8
    return nibbles * np.repeat(scales, 32, 1)
