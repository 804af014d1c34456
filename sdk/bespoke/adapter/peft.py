# SPDX-License-Identifier: Apache-2.0
"""An adapter as a PEFT folder, and back: what `peft.PeftModel.from_pretrained` loads onto the original model.

A piece `block_03.q_proj.lora_A` [rank, in] is PEFT's `base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight`,
in the same layout. The hash of the base weights travels in the metadata of the safetensors file, which PEFT ignores, so
that an adapter trained on another base is refused. Same adapter, same bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.config import Lora
from bespoke.errors import AdapterError, ModelError
from bespoke.format.json_strict import loads_strict
from bespoke.format.plain_file import read_plain
from bespoke.format.whole_folder import WholeFolder
from bespoke.model.architecture import ModelConfig
from bespoke.model.checkpoint import Checkpoint

__all__ = ["export_peft", "import_peft"]

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
_BASE_KEY = "bespoke_base_sha256"
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MAX_CONFIG_BYTES = 1_000_000
# The size of a number that is taken. With larger ones, products of two pieces, summed over a few thousand
# inputs and squared by a norm, come near to what float32 and bfloat16 hold (3e38), and float16 holds no more than 65504.
LARGEST = 1e4
# Settings of PEFT that change what an adapter computes or where it sits; we have none of them, so each must be off.
_MUST_BE_OFF = (
    "alora_invocation_tokens",
    "alpha_pattern",
    "exclude_modules",
    "fan_in_fan_out",
    "layer_replication",
    "layers_to_transform",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
)


def export_peft(
    folder: Path | str,
    tensors: Mapping[str, np.ndarray],
    *,
    lora: Lora,
    base_name: str,
    base_sha256: str,
    config: ModelConfig,
) -> Path:
    """Write adapter_config.json and adapter_model.safetensors into `folder` and return it.

    `tensors` maps the full name of each piece to float32 of the shape in `config.adapter_shapes(lora)`. The folder appears whole or
    not at all; an earlier export there is replaced, anything else in it is an AdapterError.
    """
    folder = Path(folder)
    shapes = config.adapter_shapes(lora)
    _check_names("the adapter to export", set(tensors), set(shapes), lora)
    for name, shape in shapes.items():
        if tensors[name].shape != shape or tensors[name].dtype != np.float32:
            raise AdapterError(
                f"piece {name}",
                got=f"{tensors[name].dtype} {list(tensors[name].shape)}",
                expected=f"float32 {list(shape)}",
                next_step="Give the pieces of this model at this rank",
            )
    whole = WholeFolder(folder, AdapterError, _check_replaceable)
    try:
        settings = _peft_settings(lora, base_name, config)
        _write(whole.work / CONFIG, [json.dumps(settings, indent=2, sort_keys=True).encode() + b"\n"])
        keyed = {_peft_key(name, config): tensors[name] for name in shapes}
        _write(whole.work / WEIGHTS, _safetensors(keyed, {"format": "pt", _BASE_KEY: base_sha256}))
        whole.finish()
    finally:
        whole.abandon()
    return folder


def import_peft(
    folder: Path | str,
    config: ModelConfig,
    lora: Lora,
    base_sha256: str,
    *,
    trust_base: bool = False,
) -> dict[str, np.ndarray]:
    """Full name of each piece -> float32 array, from a PEFT folder of this model's shape.

    Raises AdapterError for another base (by hash), other rank, alpha, linears or shapes, and for kinds of LoRA that
    compute something else. An adapter without our hash, one that PEFT wrote, needs `trust_base=True`.
    """
    folder = Path(folder)
    _check_settings(folder / CONFIG, lora)
    path = folder / WEIGHTS
    try:
        weights = Checkpoint.open_file(path)
        _check_base(path, weights.metadata.get(_BASE_KEY), base_sha256, trust_base)
        shapes = config.adapter_shapes(lora)
        keys = {_peft_key(name, config): name for name in shapes}
        _check_names(str(path), set(weights.names()), set(keys), lora)
        for key, name in keys.items():
            if weights.shape(key) != shapes[name]:
                raise AdapterError(
                    f"{path}, tensor {key}",
                    got=f"shape {list(weights.shape(key))}",
                    expected=str(list(shapes[name])),
                    next_step="Give an adapter of this model",
                )
        tensors = {name: weights.vector(key) for key, name in keys.items()}
    except ModelError as error:
        raise AdapterError(error.subject, got=error.got, expected=error.expected, next_step=error.next_step) from None
    for name, values in tensors.items():
        largest = float(np.abs(values).max(initial=0.0))
        if not largest <= LARGEST:
            raise AdapterError(
                f"{path}, piece {name}",
                got="NaN or infinity" if not np.isfinite(largest) else f"a number of size {largest:.3g}",
                expected=f"finite numbers of size {LARGEST:g} at most",
                next_step="Give an adapter that was trained to its end, and export it again",
            )
    return tensors


def _peft_key(name: str, config: ModelConfig) -> str:
    group, linear, piece = name.split(".")
    layer = int(group.removeprefix("block_"))
    part = "self_attn" if linear in _ATTENTION else "mlp"
    return f"base_model.model.{config.decoder_path}.layers.{layer}.{part}.{linear}.{piece}.weight"


def _peft_settings(lora: Lora, base_name: str, config: ModelConfig) -> dict[str, Any]:
    return {
        "base_model_name_or_path": base_name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": int(lora.alpha) if lora.alpha == int(lora.alpha) else lora.alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": lora.rank,
        "target_modules": _target_modules(config, lora),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }


def _target_modules(config: ModelConfig, lora: Lora) -> str | Sequence[str]:
    """Names of linears; as a pattern where the model has a part for images whose linears have the same names."""
    linears = sorted(lora.targets)
    if config.decoder_path == "model":
        return linears
    return rf"{re.escape(config.decoder_path)}\.layers\.\d+\.(self_attn|mlp)\.({'|'.join(linears)})"


def _check_settings(path: Path, lora: Lora) -> None:
    try:
        data = read_plain(path, _MAX_CONFIG_BYTES + 1)
        if len(data) > _MAX_CONFIG_BYTES:
            raise _wrong(path, f"more than {_MAX_CONFIG_BYTES} bytes", f"at most {_MAX_CONFIG_BYTES}")
    except OSError as error:
        raise _wrong(path, error.strerror or str(error), "the adapter_config.json of a PEFT adapter") from None
    raw = loads_strict(data, subject=str(path), error=AdapterError, max_bytes=_MAX_CONFIG_BYTES)
    if not isinstance(raw, dict):
        raise _wrong(path, type(raw).__name__, "an object")
    if raw.get("peft_type") != "LORA":
        raise _wrong(path, f"peft_type {raw.get('peft_type')!r}", "LORA")
    for field, wanted in (("r", lora.rank), ("lora_alpha", lora.alpha)):
        got = raw.get(field)
        if isinstance(got, bool) or not isinstance(got, int | float) or got != wanted:
            raise _wrong(path, f"{field} {got!r}", f"{wanted:g}, as the bundle has")
    if raw.get("bias", "none") != "none":
        raise _wrong(path, f"bias {raw['bias']!r}", "none")
    for field in sorted(set(_MUST_BE_OFF) | {field for field in raw if field.startswith("use_")}):
        if raw.get(field):
            raise _wrong(path, f"{field} {str(raw[field])[:80]}", "it off: plain LoRA on the same linears of every block")
    targets, linears = raw.get("target_modules"), sorted(lora.targets)
    # A pattern, or "all-linear": the names of the tensors, which are checked one by one, say what it meant.
    if not isinstance(targets, str) and (not isinstance(targets, list) or sorted(map(str, targets)) != linears):
        raise _wrong(path, f"target_modules {str(targets)[:120]}", f"{', '.join(linears)}, as the bundle has")


def _check_base(path: Path, got: str | None, expected: str, trust_base: bool) -> None:
    if got == expected:
        return
    if got is None:
        if not trust_base:
            raise AdapterError(
                f"{path}, base model",
                got="no hash of the base it was trained on",
                expected=f"base {expected[:12]}",
                next_step="Pass trust_base=True if you know that it was trained on this model",
            )
        return
    raise AdapterError(
        f"{path}, base model",
        got=f"an adapter trained on base {got[:12]}",
        expected=f"base {expected[:12]}",
        next_step="Give an adapter of this bundle's base, or open the bundle it was trained with",
    )


def _check_names(subject: str, got: set[str], expected: set[str], lora: Lora) -> None:
    missing, extra = sorted(expected - got), sorted(got - expected)
    if not missing and not extra:
        return
    parts = [f"no {missing[0]}" + (f" and {len(missing) - 1} more missing" if missing[1:] else "")] if missing else []
    parts += [f"an unknown {extra[0]}" + (f" and {len(extra) - 1} more" if extra[1:] else "")] if extra else []
    raise AdapterError(
        subject,
        got="; ".join(parts),
        expected=f"{len(expected)} tensors: lora_A and lora_B of {', '.join(lora.targets)} of every block",
        next_step="Give an adapter of this model, on these linears",
    )


def _safetensors(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """A plain safetensors file in pieces, in the order of names; the package's own writer leaves the order open."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name in sorted(tensors):
        shape = tensors[name].shape
        size = 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = [np.ascontiguousarray(tensors[name], "<f4").data.cast("B") for name in sorted(tensors)]
    return [len(text).to_bytes(8, "little"), text, *data]


def _write(path: Path, pieces: list[bytes | memoryview]) -> None:
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _check_replaceable(folder: Path) -> None:
    if not {path.name for path in folder.iterdir()} <= {CONFIG, WEIGHTS}:
        raise AdapterError(
            str(folder), got="a path that holds other files", expected=f"a new folder, or one with only {CONFIG} and {WEIGHTS}",
            next_step="Choose another folder",
        )  # fmt: skip


def _wrong(path: Path, got: str, expected: str) -> AdapterError:
    return AdapterError(str(path), got=got, expected=expected, next_step="Give a LoRA adapter made for this bundle")
