# SPDX-License-Identifier: Apache-2.0
"""Reads the adapter from a PEFT folder that the core has just written, under the bundle's names.

A folder from elsewhere is for the core to read, which refuses tensors that do not fit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from bespoke.bundle.manifest import Manifest

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def exported_adapter(folder: Path, manifest: Manifest) -> dict[str, np.ndarray]:
    """The pieces of the adapter in `folder`: full name -> float32."""
    config = manifest.model.config
    tensors = load_file(folder / "adapter_model.safetensors")
    return {
        name: tensors[peft_key(name, config.decoder_path)] for name in config.adapter_shapes(manifest.lora.settings)
    }


def peft_key(name: str, decoder_path: str) -> str:
    """The name that a PEFT folder has for a piece such as `block_00.q_proj.lora_A`."""
    group, linear, piece = name.split(".")
    part = "self_attn" if linear in _ATTENTION else "mlp"
    return f"base_model.model.{decoder_path}.layers.{int(group.removeprefix('block_'))}.{part}.{linear}.{piece}.weight"
