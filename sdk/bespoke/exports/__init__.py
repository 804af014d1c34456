# SPDX-License-Identifier: Apache-2.0
"""Exports for other engines: a merged Hugging Face folder, the base model for llama.cpp, a training step as a torch module.

Names are loaded when first asked for, because the training step imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bespoke.exports.forward_only import DECOMPOSITIONS, ForwardOnly
    from bespoke.reference.exported import peft_key

_HOME = {
    "DECOMPOSITIONS": "bespoke.exports.forward_only",
    "ForwardOnly": "bespoke.exports.forward_only",
    "peft_key": "bespoke.reference.exported",
}

__all__ = ["DECOMPOSITIONS", "ForwardOnly", "peft_key"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bespoke.exports' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)
