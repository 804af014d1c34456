# SPDX-License-Identifier: Apache-2.0
"""GGUF's names of our architectures and tensors, and the tensors whose rows it stores in another order.

In the architecture "llama" llama.cpp rotates neighbouring rows of a head. transformers rotates rows that are half a head
apart. So the rows of q_proj and k_proj are permuted (`LlamaModel.permute` in convert_hf_to_gguf.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from bespoke.errors import MissingDependency, UnsupportedModel
from bespoke.model.architecture import ModelConfig
from bespoke.model.convert import SourceTensor

with MissingDependency.unless_there("A GGUF file", "gguf", "gguf"):
    import gguf

__all__ = ["ARCHITECTURES", "reordered_heads", "tensor_names"]

ARCHITECTURES = {"llama": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "gemma3_text": "GEMMA3"}
"""Our family -> its name in gguf.MODEL_ARCH."""
_REORDERED = {"q_proj": "num_heads", "k_proj": "num_kv_heads"}


def tensor_names(config: ModelConfig, sources: Iterable[SourceTensor]) -> dict[str, SourceTensor]:
    """GGUF's name -> tensor, in the order of `sources`. Raises UnsupportedModel if llama.cpp has no name for a tensor."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[ARCHITECTURES[config.family]], config.num_layers)
    by_name = {}
    for source in sources:
        name = names.get_name(source.name, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise UnsupportedModel(
                f"tensor {source.name}",
                got=f"no name for it in llama.cpp's {config.family}",
                expected="a tensor that it has",
                next_step="Install a newer gguf",
            )
        by_name[name] = source
    return by_name


def reordered_heads(config: ModelConfig, source: SourceTensor) -> int | None:
    """Number of heads of a tensor whose rows llama.cpp permutes within each head; None for any other tensor."""
    if config.family != "llama" or source.target not in _REORDERED:
        return None
    return int(getattr(config, _REORDERED[source.target]))
