# SPDX-License-Identifier: Apache-2.0
"""Exports the model that answers as a Hugging Face folder in float16: the bundle's decoded int4 weights plus the adapter.

    W' = W + (alpha / rank) B A        for each linear of the adapter (LoRA, equation 3), in float32, rounded once to float16

The weights are those that the adapter was trained on. With the original weights it would answer differently. Configuration and
tokenizer come from the original model's folder, because a bundle does not hold them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.bundle.reader import Bundle
from bespoke.errors import AdapterError, ModelError
from bespoke.format.plain_file import open_plain, read_plain
from bespoke.format.tensors import TensorWriter
from bespoke.format.whole_folder import WholeFolder
from bespoke.model.checkpoint import SINGLE
from bespoke.model.convert import SourceTensor, named_sources, sources_of
from bespoke.model.quantize import dequantize
from bespoke.model.weight_source import WeightSource

__all__ = ["write_merged"]

CONFIG = "config.json"
COPIED = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "LICENSE*",
    "NOTICE*",
)
OF_STORED_WEIGHTS = (
    "torch_dtype",
    "quantization_config",
)  # keys of config.json that do not describe the merged weights
WEIGHTS_AT_ONCE = 1 << 20  # weights that are decoded at a time


def write_merged(
    bundle: Bundle, adapter: Mapping[str, np.ndarray], model: Path, weights: WeightSource, out: Path
) -> Path:
    """Writes the folder `out`: config.json, model.safetensors, tokenizer and licence. It holds few rows of weights in memory.

    Args:
        bundle: the bundle with the base weights.
        adapter: every piece by its full name, float32.
        model: the folder of the original model, from which the bundle was built.
        weights: the original weights, from which the bundle's were quantized.
        out: the folder to write. It must not exist, or hold only a model that was merged before.

    Raises:
        AdapterError: if `model` is another model, if a merged weight does not fit float16, or if `out` holds something else.
    """
    config = bundle.manifest.model.config
    sources = sources_of(weights, config)
    _check_base(bundle, weights, sources, model)
    if weights.whole_norms:
        sources = named_sources(config)  # transformers expects w where the file has 1 + w

    whole = WholeFolder(out, AdapterError, _replaceable, personal=True)
    try:
        layout = {source.name: (np.float16, source.shape) for group in sources.values() for source in group}
        with TensorWriter(whole.new_file(SINGLE), layout) as writer:
            for group, group_sources in sources.items():
                tensors = bundle.weights(group)
                for source in group_sources:
                    for rows in _merged_rows(bundle, tensors, adapter, group, source):
                        writer.write(source.name, _rounded(rows, source.name))

        settings = {name: value for name, value in _settings(model / CONFIG).items() if name not in OF_STORED_WEIGHTS}
        whole.new_file(CONFIG).write_text(
            json.dumps(settings | {"dtype": "float16"}, indent=2) + "\n", encoding="utf-8"
        )

        for pattern in COPIED:
            for path in (path for path in model.glob(pattern) if not path.is_dir()):
                with _reading(path), open_plain(path) as file, whole.new_file(path.name).open("wb") as copy:
                    shutil.copyfileobj(file, copy)
        return whole.finish()
    finally:
        whole.abandon()


def _settings(path: Path) -> dict[str, Any]:
    with _reading(path):
        settings = json.loads(read_plain(path))
    if not isinstance(settings, dict):
        raise _unreadable(path, "no JSON object")
    return settings


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns errors from reading a file of the model's folder into ModelError."""
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        got = (error.strerror or str(error)) if isinstance(error, OSError) else "no JSON object"
        raise _unreadable(path, got) from None


def _unreadable(path: Path, got: str) -> ModelError:
    return ModelError(str(path), got=got, expected="a file of the model's folder", next_step="Download it again")


def _merged_rows(
    bundle: Bundle,
    tensors: Mapping[str, np.ndarray],
    adapter: Mapping[str, np.ndarray],
    group: str,
    source: SourceTensor,
) -> Iterator[np.ndarray]:
    """Yields the merged rows of one tensor, some at a time, as the original model has them."""
    if not source.quantized:
        yield tensors[source.target] - _added(source)
        return
    codes, scales = tensors[f"{source.target}.codes"], tensors[f"{source.target}.scales"]
    a, b = (adapter.get(f"{group}.{source.target}.{piece}") for piece in ("lora_A", "lora_B"))

    rows, columns = source.shape
    step = max(1, WEIGHTS_AT_ONCE // columns)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        weights = dequantize(codes[part], scales[part], columns)
        if a is not None and b is not None:
            weights = weights + np.float32(bundle.manifest.lora.settings.scale) * (b[part] @ a)
        yield weights


def _added(source: SourceTensor) -> np.float32:
    return np.float32(source.add)


def _rounded(rows: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = rows.astype(np.float16)
    if not np.isfinite(rounded).all():
        raise AdapterError(
            f"tensor {name}, merged",
            got=f"a number of size {np.abs(rows).max():g}",
            expected=f"at most {np.finfo(np.float16).max:g}",
            next_step="Export the adapter as 'peft' and merge it in float32",
        )
    return rounded


def _check_base(
    bundle: Bundle, checkpoint: WeightSource, sources: Mapping[str, list[SourceTensor]], model: Path
) -> None:
    """Raises AdapterError if the bundle was not built from this model.

    It compares the norms, which a bundle keeps unchanged. They differ in another model and in another training of the same one.
    """
    for group, group_sources in sources.items():
        tensors = bundle.weights(group)
        for source in group_sources:
            exists = source.name in checkpoint and checkpoint.shape(source.name) == source.shape
            if exists and source.quantized:
                continue
            if not exists or not np.array_equal(
                tensors[source.target], checkpoint.vector(source.name) + _added(source)
            ):
                raise AdapterError(
                    f"model {model}",
                    got=f"another model: {source.name} differs",
                    expected="the one that the bundle was built from",
                    next_step="Name that one",
                )


def _replaceable(folder: Path) -> None:
    """Raises AdapterError if the folder was not written by an earlier export."""
    if not (folder / SINGLE).is_file() or not (folder / CONFIG).is_file():
        raise AdapterError(
            str(folder),
            got="a folder with something else in it",
            expected="no folder, or a model that was merged before",
            next_step="Choose another folder, or delete this one",
        )
