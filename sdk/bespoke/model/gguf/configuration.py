# SPDX-License-Identifier: Apache-2.0
"""A GGUF file's metadata as the config.json that transformers reads: the inverse of convert_hf_to_gguf.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from bespoke.errors import ModelError, UnsupportedModel
from bespoke.format.gguf_header import GgufHeader
from bespoke.format.plain_file import open_plain
from bespoke.model.architecture import RopeConfig
from bespoke.model.rope import rope_stretch

__all__ = ["read_settings"]

_FAMILIES = {  # GGUF's architecture -> transformers' model_type, class
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
}
_NO_WINDOW = 2**31 - 1
_GEMMA_WINDOW_EVERY = 6  # every sixth layer attends to all positions, in each published Gemma 3
# (factor of low frequencies, factor of high frequencies, length of the first training) of every published Llama 3. A file
# stores only their effect.
_LLAMA3_BANDS = ((1.0, 4.0, 8192),)


def read_settings(header: GgufHeader) -> dict[str, Any]:
    """The fields of config.json. Raises ModelError for missing metadata, UnsupportedModel for another architecture."""
    fields = _Metadata(header)
    _check_kind(fields)
    architecture = fields.text("general.architecture")
    if architecture not in _FAMILIES:
        fields.refuse("general.architecture", architecture, " or ".join(_FAMILIES), "Choose another model")
    kind, name = _FAMILIES[architecture]
    at = f"{architecture}."

    for key, meaning in (
        ("expert_count", "a mixture of experts"),
        ("attention.scale", "a scale of its own for attention scores"),
    ):
        if fields.get(at + key):
            fields.refuse(at + key, f"{fields.get(at + key)!r} ({meaning})", "none", "Choose another model")

    heads, hidden = fields.integer(at + "attention.head_count"), fields.integer(at + "embedding_length")
    head_dim = fields.integer(at + "attention.key_length", max(1, hidden // heads))
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(at + key, head_dim) != head_dim:
            fields.refuse(
                at + key, str(fields.get(at + key)), f"{head_dim}, as attention.key_length", "Choose another model"
            )

    layers = fields.integer(at + "block_count")
    settings: dict[str, Any] = {
        "architectures": [name],
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": fields.integer(at + "feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": fields.integer(at + "attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": _vocabulary(header, hidden),
        "max_position_embeddings": fields.integer(at + "context_length"),
        "rms_norm_eps": fields.number(at + "attention.layer_norm_rms_epsilon"),
        "rope_theta": fields.number(at + "rope.freq_base", 10_000.0),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "dtype": "float32",  # llama.cpp computes in it; Gemma's scale of the embedding is not rounded to bfloat16 then
    }

    scaling = _rope_scaling(fields, at, settings)
    if scaling is not None:
        settings["rope_scaling"] = scaling
    if kind == "gemma3_text":
        settings |= _gemma(fields, at, layers, heads, hidden, head_dim)
    elif (window := fields.integer(at + "attention.sliding_window", _NO_WINDOW)) < settings["max_position_embeddings"]:
        fields.refuse(
            at + "attention.sliding_window", str(window), "none: llama.cpp has none here", "Choose another model"
        )
    return settings | _token_ids(fields)


class _Metadata:
    """The metadata, read with types and with errors that name file and field."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header

    def get(self, key: str) -> Any:
        return self.header.metadata.get(key)

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            self.wrong(key, value, "text")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():  # a value for each layer
            value = value[0].item()
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            self.wrong(key, value, "a whole number above 0, the same in all layers")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """The shortest decimal number that rounds to the stored float32: 1e-05, and not 9.999999747378752e-06."""
        value = self.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            self.wrong(key, value, "a number above 0")
        return float(str(np.float32(value)))

    def wrong(self, key: str, value: Any, expected: str) -> NoReturn:
        shown = "nothing" if value is None else repr(value)[:200]
        raise ModelError(
            f"{self.header.path}: {key}", got=shown, expected=expected, next_step="Download the file again"
        )

    def refuse(self, key: str, got: str, expected: str, next_step: str) -> NoReturn:
        raise UnsupportedModel(f"{self.header.path}: {key}", got=got[:200], expected=expected, next_step=next_step)


def _check_kind(fields: _Metadata) -> None:
    """Refuse the other kinds of GGUF file: adapters, parts of a model, projectors."""
    kind = fields.get("general.type")
    if kind == "adapter":
        step = "Build from its base, and take it with PersonalModel.import_adapter in PEFT's form"
        fields.refuse("general.type", "a LoRA adapter", "a model", step)
    if kind is not None and kind != "model":
        fields.refuse("general.type", str(kind), "a model", "Give the file that holds the language model")
    parts = fields.get("split.count")
    if isinstance(parts, int) and parts > 1:
        fields.refuse(
            "split.count", f"one of {parts} parts", "a whole model", "Join them: llama-gguf-split --merge FIRST OUT"
        )


def _vocabulary(header: GgufHeader, hidden: int) -> int:
    table = header.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2 or table.shape[1] != hidden:
        raise ModelError(
            f"{header.path}: token_embd.weight",
            got="none" if table is None else f"shape {list(table.shape)}",
            expected=f"a table of {hidden} columns",
            next_step="Give the file that holds the language model",
        )
    return table.shape[0]


def _rope_scaling(fields: _Metadata, at: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    stretch = fields.header.tensors.get("rope_freqs.weight")
    if stretch is not None:
        return _llama3(fields, settings, stretch.offset, stretch.kind, stretch.shape)
    kind = fields.get(at + "rope.scaling.type")
    if kind in (None, "none"):
        return None
    if kind != "linear":
        fields.refuse(at + "rope.scaling.type", str(kind), "none or linear", "Choose another model")
    return {"rope_type": "linear", "factor": fields.number(at + "rope.scaling.factor")}


def _llama3(
    fields: _Metadata, settings: Mapping[str, Any], offset: int, kind: int, shape: Sequence[int]
) -> dict[str, Any]:
    """The settings of a published model that give the divisors stored in `rope_freqs.weight`."""
    pairs = settings["head_dim"] // 2
    if kind != 0 or tuple(shape) != (pairs,):
        fields.refuse(
            "rope_freqs.weight", f"type {kind}, shape {list(shape)}", f"{pairs} numbers of F32", "Choose another file"
        )
    with open_plain(fields.header.path) as file:
        file.seek(offset)
        stored = np.frombuffer(file.read(4 * pairs), "<f4")
    for low, high, length in _LLAMA3_BANDS:
        rope = RopeConfig(
            kind="llama3",
            theta=settings["rope_theta"],
            factor=float(stored.max(initial=1.0)),
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_positions=length,
        )
        if stored.size == pairs and np.allclose(rope_stretch(rope, settings["head_dim"]), stored, rtol=1e-5, atol=0):
            return {
                "rope_type": "llama3",
                "factor": rope.factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": length,
            }
    fields.refuse(
        "rope_freqs.weight", "divisors that no published Llama 3 has", "those of Llama 3", "Choose another model"
    )


def _gemma(fields: _Metadata, at: str, layers: int, heads: int, hidden: int, head_dim: int) -> dict[str, Any]:
    """Settings of Gemma 3 alone.

    No file stores `query_pre_attn_scalar`. llama.cpp scales by the head's width, and by hidden / heads in the model of 62
    layers.
    """
    pattern = fields.get(at + "attention.sliding_window_pattern")
    sliding = (
        [bool((layer + 1) % _GEMMA_WINDOW_EVERY) for layer in range(layers)]
        if pattern is None
        else list(map(bool, pattern))
    )
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": hidden // heads if layers == 62 else head_dim,
        "sliding_window": fields.integer(at + "attention.sliding_window"),
        "layer_types": ["sliding_attention" if slides else "full_attention" for slides in sliding],
        "rope_local_base_freq": fields.number(at + "rope.freq_base_swa", 10_000.0),
    }


def _token_ids(fields: _Metadata) -> dict[str, Any]:
    """Ids of bos, eos and pad. If turns end with another token than texts, both are eos."""
    ids: dict[str, Any] = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        value = fields.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(value, int):
            ids[f"{name}_token_id"] = value

    ends = [ids["eos_token_id"]] if "eos_token_id" in ids else []
    for key in ("eot", "eom"):
        value = fields.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(value, int) and value not in ends:
            ends.append(value)
    return ids | ({"eos_token_id": ends} if len(ends) > 1 else {})
