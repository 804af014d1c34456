# SPDX-License-Identifier: Apache-2.0
"""What GGUF calls our architectures and tensors, and the rows that it keeps in another order.

In the architecture "llama" llama.cpp rotates neighbouring rows of a head, transformers rows that are half a head apart, and so the
rows of q_proj and k_proj change places (`LlamaModel.permute` in convert_hf_to_gguf.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from bespoke.errors import MissingDependency, UnsupportedModel
from bespoke.model.architecture import ModelConfig
from bespoke.model.convert import Source

with MissingDependency.unless_there("A GGUF file", "gguf", "gguf"):
    import gguf

__all__ = ["ARCHITECTURES", "reordered_heads", "tensor_names"]

ARCHITECTURES = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "gemma3_text": "GEMMA3"}
"""Our families, and their names in gguf.MODEL_ARCH."""
_REORDERED = {"q_proj": "num_heads", "k_proj": "num_kv_heads"}


def tensor_names(config: ModelConfig, sources: Iterable[Source]) -> dict[str, Source]:
    """GGUF's name -> tensor, in the order of `sources`. UnsupportedModel for one that llama.cpp has no name for."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[ARCHITECTURES[config.family]], config.num_layers)
    found = {}
    for source in sources:
        name = names.get_name(source.name, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise UnsupportedModel(
                f"tensor {source.name}",
                got=f"no name for it in llama.cpp's {config.family}",
                expected="a tensor that it has",
                next_step="Install a newer gguf",
            )
        found[name] = source
    return found


def reordered_heads(config: ModelConfig, source: Source) -> int | None:
    """How many heads the rows of a tensor belong to, where llama.cpp keeps the rows of each in another order."""
    if config.family != "llama" or source.target not in _REORDERED:
        return None
    return int(getattr(config, _REORDERED[source.target]))
