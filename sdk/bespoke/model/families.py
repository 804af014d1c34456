# SPDX-License-Identifier: Apache-2.0
"""Translator from a Hugging Face config.json to the canonical decoder, family by family.

Missing fields get the defaults of transformers' configuration classes: the weights were saved with them. A setting that
the canonical decoder cannot express is refused by name before any weight is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.errors import ModelError, UnsupportedModel
from bespoke.format.json_strict import shown_json
from bespoke.format.plain_file import read_plain
from bespoke.model.architecture import ModelConfig, RopeConfig
from bespoke.model.checkpoint import Checkpoint
from bespoke.model.compressed_tensors import open_weights
from bespoke.model.folder_kind import check_model_folder, check_weights_are_readable
from bespoke.model.weight_source import WeightSource

__all__ = ["read_config"]

_MOST_LAYERS = 1000
_ROPE_KINDS = ("default", "linear", "llama3")
_SUPPORTED = "llama, qwen2 (Qwen2 and Qwen2.5), qwen3 or gemma3 (text)"


def read_config(folder: Path | str) -> ModelConfig:
    """The configuration of a model folder. Headers of its weights decide the dtype and whether the head is tied.

    Raises ModelError for a missing or damaged config.json, UnsupportedModel for a model that is no canonical decoder.
    """
    folder = Path(folder)
    check_model_folder(folder)
    path = folder / "config.json"
    try:
        raw = json.loads(read_plain(path))
    except OSError as error:
        raise ModelError(
            str(path),
            got=error.strerror or str(error),
            expected="the config.json of a Hugging Face model folder",
            next_step="Give the folder that holds config.json and model.safetensors",
        ) from None
    except (ValueError, RecursionError):
        raise ModelError(
            str(path), got="text that is no JSON", expected="a JSON object", next_step="Download it again"
        ) from None
    if not isinstance(raw, dict):
        raise ModelError(
            str(path), got=type(raw).__name__, expected="a JSON object", next_step="Download the file again"
        )
    checkpoint = open_weights(folder) if Checkpoint.present(folder) else None
    check_weights_are_readable(path, raw, checkpoint)
    return _translate(_Fields(str(path), raw), checkpoint)


class _Fields:
    """The raw JSON, read with types and with errors that name file and field."""

    def __init__(self, path: str, raw: Mapping[str, Any]) -> None:
        self.path = path
        self.raw = raw

    def get(self, key: str, default: Any = None) -> Any:
        value = self.raw.get(key)
        return default if value is None else value

    def integer(self, key: str, default: int | None = None, *, least: int = 1, most: int = 2**31 - 1) -> int:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(key, value, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self._wrong(key, value, "a number above 0")
        return float(value)

    def inner(self, key: str) -> _Fields | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, value, "an object")
        return _Fields(f"{self.path}: {key}", value)

    def layer_types(self, layers: int, default: list[bool]) -> tuple[bool, ...]:
        """True for each layer with a sliding window."""
        value = self.get("layer_types")
        if value is None:
            return tuple(default)
        known = {"full_attention": False, "sliding_attention": True}
        if not isinstance(value, list) or len(value) != layers or not all(str(kind) in known for kind in value):
            raise self.refuse("layer_types", value, f"{layers} times one of {', '.join(known)}")
        return tuple(known[kind] for kind in value)

    def _wrong(self, key: str, value: Any, expected: str) -> ModelError:
        return ModelError(
            f"{self.path}: {key}",
            got="nothing" if value is None else shown_json(value, 100),
            expected=expected,
            next_step="Check that the download is complete",
        )

    def refuse(self, key: str, got: Any, expected: str, next_step: str = "Choose another model") -> UnsupportedModel:
        text = got[:200] if isinstance(got, str) else shown_json(got, 200)
        return UnsupportedModel(f"{self.path}: {key}", got=text, expected=expected, next_step=next_step)


def _translate(raw: _Fields, checkpoint: WeightSource | None) -> ModelConfig:
    kind = raw.get("model_type")
    if "auto_map" in raw.raw:
        raise raw.refuse("auto_map", "a model that brings its own code", f"one of {_SUPPORTED}")
    fields, path = raw, "model"
    if kind == "gemma3":
        fields, path = _text_of(raw, checkpoint), "model.language_model"
        kind = "gemma3_text"
    if kind == "gemma3_text":
        config = _gemma3(fields, raw, checkpoint)
    elif kind in ("llama", "qwen2", "qwen3"):
        config = _llama_like(fields, kind)
    else:
        raise raw.refuse("model_type", kind or "nothing", f"one of {_SUPPORTED}")
    config |= {"decoder_path": path, "tied_head": _tied(raw, kind == "gemma3_text", checkpoint)}
    _check_shapes(fields, config)
    return ModelConfig(**config)


def _text_of(raw: _Fields, checkpoint: WeightSource | None) -> _Fields:
    text = raw.inner("text_config")
    has_language_model = checkpoint is None or any("language_model." in name for name in checkpoint.names())
    if text is None or not has_language_model:
        raise raw.refuse(
            "model_type",
            "gemma3 (text and images)" + (" without text_config" if text is None else " without its language model"),
            "text_config, and tensors under language_model",
            "Use the text model (model_type gemma3_text)",
        )
    return text


def _llama_like(fields: _Fields, kind: str) -> dict[str, Any]:
    _refuse_flags(fields, {"attention_bias": "biases on the attention's output", "mlp_bias": "biases in the MLP"})

    activation = fields.get("hidden_act", "silu")
    if activation != "silu":
        raise fields.refuse("hidden_act", activation, "silu")

    heads, hidden = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    head_dim = fields.integer("head_dim", 128 if kind == "qwen3" else max(1, hidden // heads))
    layers = fields.integer("num_hidden_layers", most=_MOST_LAYERS)

    window = None
    if kind != "llama" and fields.get("use_sliding_window", False):
        window = fields.integer("sliding_window", 4096)
    first = fields.integer("max_window_layers", 28, least=0)
    sliding = fields.layer_types(layers, [layer >= first for layer in range(layers)])
    sliding = tuple(window is not None and slides for slides in sliding)

    positions = fields.integer("max_position_embeddings", 2048 if kind == "llama" else 32768)
    scaling = fields.inner("rope_scaling") or fields.inner("rope_parameters") or _Fields(fields.path, {})
    return {
        "family": kind,
        "hidden_size": hidden,
        "intermediate_size": fields.integer("intermediate_size"),
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": fields.integer("num_key_value_heads", heads if kind == "llama" else 32),
        "head_dim": head_dim,
        "vocab_size": fields.integer("vocab_size"),
        "norm_eps": fields.number("rms_norm_eps", 1e-6),
        "activation": "silu",
        "qkv_bias": kind == "qwen2",
        "qk_norm": kind == "qwen3",
        "output_norms": False,
        "embedding_scale": 1.0,
        "attention_scale": head_dim**-0.5,
        "rope": _rope(fields, scaling, fields.number("rope_theta", 10_000.0), positions),
        "rope_local": None,
        "sliding_window": window if any(sliding) else None,
        "sliding_layers": sliding,
        "max_positions": positions,
    }


def _gemma3(fields: _Fields, outer: _Fields, checkpoint: WeightSource | None) -> dict[str, Any]:
    _refuse_flags(
        fields,
        {
            "attention_bias": "biases on the attention's output",
            "use_bidirectional_attention": "attention to later tokens",
            "attn_logit_softcapping": "soft-capped attention scores",
            "final_logit_softcapping": "soft-capped logits",
        },
    )

    activation = fields.get("hidden_activation", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        raise fields.refuse("hidden_activation", activation, "gelu_pytorch_tanh")

    hidden, layers = fields.integer("hidden_size", 2304), fields.integer("num_hidden_layers", 26, most=_MOST_LAYERS)
    pattern = fields.integer("sliding_window_pattern", 6)
    positions = fields.integer("max_position_embeddings", 131_072)

    rope = fields.inner("rope_parameters") or _Fields(fields.path, {})
    whole, local = (rope.inner(name) for name in ("full_attention", "sliding_attention"))
    scaling = fields.inner("rope_scaling")
    scaling = _Fields(fields.path, {**(whole.raw if whole else {}), **(scaling.raw if scaling else {})})
    return {
        "family": "gemma3_text",
        "hidden_size": hidden,
        "intermediate_size": fields.integer("intermediate_size", 9216),
        "num_layers": layers,
        "num_heads": fields.integer("num_attention_heads", 8),
        "num_kv_heads": fields.integer("num_key_value_heads", 4),
        "head_dim": fields.integer("head_dim", 256),
        "vocab_size": fields.integer("vocab_size", 262_208),
        "norm_eps": fields.number("rms_norm_eps", 1e-6),
        "activation": "gelu_tanh",
        "qkv_bias": False,
        "qk_norm": True,
        "output_norms": True,
        "embedding_scale": _embedding_scale(hidden, fields, outer, checkpoint),
        "attention_scale": fields.number("query_pre_attn_scalar", 256) ** -0.5,
        "rope": _rope(fields, scaling, fields.number("rope_theta", 1_000_000.0), positions),
        "rope_local": _rope(
            fields,
            local or _Fields(fields.path, {}),
            fields.number("rope_local_base_freq", 10_000.0),
            positions,
        ),
        "sliding_window": fields.integer("sliding_window", 4096),
        "sliding_layers": fields.layer_types(layers, [bool((layer + 1) % pattern) for layer in range(layers)]),
        "max_positions": positions,
    }


def _refuse_flags(fields: _Fields, flags: dict[str, str]) -> None:
    for key, meaning in flags.items():
        if fields.get(key, False):
            raise fields.refuse(
                key, f"{shown_json(fields.get(key))} ({meaning})", f"none: no supported model ({_SUPPORTED}) has it"
            )


def _rope(fields: _Fields, block: _Fields, theta: float, positions: int) -> RopeConfig:
    kind = block.get("rope_type", block.get("type", "default"))
    if kind not in _ROPE_KINDS:
        raise fields.refuse("RoPE scaling", kind, f"one of {', '.join(_ROPE_KINDS)}")
    partial = block.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise fields.refuse("partial_rotary_factor", partial, "1.0")
    original = None
    if kind == "llama3":  # a value next to rope_scaling wins over a value inside it, as in transformers
        inside = block.integer("original_max_position_embeddings", positions)
        original = fields.integer("original_max_position_embeddings", inside)
    return RopeConfig(
        kind=kind,
        theta=block.number("rope_theta", theta),
        factor=block.number("factor") if kind != "default" else None,
        low_freq_factor=block.number("low_freq_factor") if kind == "llama3" else None,
        high_freq_factor=block.number("high_freq_factor") if kind == "llama3" else None,
        original_max_positions=original,
    )


def _embedding_scale(hidden: int, fields: _Fields, outer: _Fields, checkpoint: WeightSource | None) -> float:
    """sqrt(hidden) rounded to the weights' dtype, as in transformers: sqrt(3072) = 55.4256 is 55.5 in bf16."""
    dtype = next(
        (value for f in (fields, outer) for key in ("dtype", "torch_dtype") if (value := f.get(key)) is not None), None
    )
    if dtype is None and checkpoint is not None:
        dtype = checkpoint.dtype(next(name for name in checkpoint.names() if name.endswith("norm.weight")))
    scale = np.float32(hidden**0.5)
    if dtype == "bfloat16":
        bits = int(scale.view(np.uint32))
        bits += 0x7FFF + ((bits >> 16) & 1)  # half to even
        return float(np.uint32(bits & 0xFFFF0000).view(np.float32))
    return float(np.float16(scale)) if dtype == "float16" else float(scale)


def _tied(raw: _Fields, default: bool, checkpoint: WeightSource | None) -> bool:
    """Whether the head is tied, as transformers decides: if the configuration says so and the file has no head of its own."""
    if not raw.get("tie_word_embeddings", default):
        return False
    if checkpoint is None:
        return True
    heads = [name for name in checkpoint.names() if name.endswith("lm_head.weight")]
    tables = [name for name in checkpoint.names() if name.endswith("embed_tokens.weight")]
    if not heads or not tables:
        return True
    if checkpoint.shape(heads[0]) != checkpoint.shape(tables[0]):
        return False
    return all(
        np.array_equal(rows, checkpoint.rows(heads[0], start, start + len(rows)))
        for start, rows in checkpoint.chunks(tables[0])
    )


def _check_shapes(fields: _Fields, config: dict[str, Any]) -> None:
    heads, kv_heads = config["num_heads"], config["num_kv_heads"]
    if heads % kv_heads:
        raise fields.refuse("num_key_value_heads", f"{kv_heads} for {heads} heads", "a divisor of the number of heads")
    if config["head_dim"] % 2:
        raise fields.refuse("head_dim", config["head_dim"], "an even number, for RoPE")
