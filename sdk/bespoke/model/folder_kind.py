# SPDX-License-Identifier: Apache-2.0
"""Checks of a model folder: names the format of weights that no build reads, and the files that a build passes over.

People have models in many formats. Each error names the format and the one step that turns it into a folder for a build.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bespoke.errors import ModelError, UnsupportedModel
from bespoke.format.json_strict import shown_json
from bespoke.format.plain_file import read_plain
from bespoke.model.checkpoint import INDEX, ORIGINAL, SINGLE, Checkpoint, check_no_other_weights
from bespoke.model.compressed_tensors import METHOD
from bespoke.model.weight_source import WeightSource
from bespoke.remedies import setting

__all__ = ["TOKENIZER", "check_model_folder", "check_weights_are_readable", "notes_on"]

CONFIG, ADAPTER, TOKENIZER = "config.json", "adapter_config.json", "tokenizer.json"
# quantization_config.quant_method -> the name that people know.
_METHODS = {"awq": "AWQ", "gptq": "GPTQ", "fp8": "FP8", "fbgemm_fp8": "FP8", "hqq": "HQQ", "mxfp4": "MXFP4"}


def check_model_folder(folder: Path) -> None:
    """Raise ModelError unless the folder holds config.json and safetensors. Weights are not read."""
    if not (folder / CONFIG).is_file() and (folder / ADAPTER).is_file():
        raise _adapter(folder)
    if not Checkpoint.present(folder):
        check_no_other_weights(folder)


def _adapter(folder: Path) -> ModelError:
    settings = _read(folder / ADAPTER)
    kind = "PEFT" if "peft_type" in settings else "mlx-lm"
    base = settings.get("base_model_name_or_path", settings.get("model"))
    named = f", {base[:200]}" if isinstance(base, str) and base else ""
    return ModelError(
        f"model {folder}",
        got=f"an adapter of {kind} ({ADAPTER}) and no {CONFIG}",
        expected="a model",
        next_step=f"Build from its base{named}, and take it with PersonalModel.import_adapter({str(folder)!r}, trust_base=True)",
    )


def check_weights_are_readable(path: Path, config: Mapping[str, Any], checkpoint: WeightSource | None) -> None:
    """Raise UnsupportedModel if `config` (the content of `path`) or tensor names show a quantization that no build reads."""
    folder = path.parent
    mlx, other = config.get("quantization"), config.get("quantization_config")
    names = [] if checkpoint is None else checkpoint.names()
    method = other.get("quant_method") if isinstance(other, Mapping) else None
    if method is None and (isinstance(mlx, Mapping) or any(name.endswith(".scales") for name in names)):
        field, value = ("quantization", mlx) if mlx is not None else ("tensors", "*.scales")
        raise _quantized(
            path,
            field,
            f"weights quantized by MLX, {_shown(value)}",
            f"{ORIGINAL}. Or decode these with mlx-lm: mlx_lm.convert({str(folder)!r}, mlx_path=OUT, dequantize=True)",
        )
    if other is not None and method != METHOD:
        quantizer = f"{_METHODS.get(method, method)}, " if isinstance(method, str) else ""
        got = f"weights that are already quantized: {quantizer}{_shown(other)}"
        raise _quantized(path, "quantization_config", got, ORIGINAL)
    for name in names:
        if name.endswith(".qweight"):
            raise _quantized(path, "tensors", f"weights quantized by GPTQ or AWQ ({name})", ORIGINAL)


def _quantized(path: Path, field: str, got: str, next_step: str) -> UnsupportedModel:
    return UnsupportedModel(f"{path}: {field}", got=got, expected="float weights", next_step=next_step)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else shown_json(value, 200)


def notes_on(folder: Path, text_folder: Path | None) -> list[str]:
    """A line for each file that a build passes over. `text_folder`: the folder that should hold the tokenizer, if any."""
    notes = []
    if (folder / SINGLE).is_file() and (folder / INDEX).is_file():
        notes.append(
            f"{folder}: {SINGLE} is taken as the whole model, as transformers does; {INDEX} and its files are not read"
        )
    if (folder / ADAPTER).is_file():
        notes.append(
            f"{folder}: the adapter in the model's folder ({ADAPTER}) is not used, though transformers with peft would add it. "
            "Merge it into the model before the build, or take it afterwards with PersonalModel.import_adapter"
        )
    if text_folder is not None and not (text_folder / TOKENIZER).is_file():
        notes.append(
            f"{text_folder}: no {TOKENIZER}, so the bundle takes token ids and no text. "
            + setting("text", False)
            + " says that it is meant"
        )
    return notes


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
