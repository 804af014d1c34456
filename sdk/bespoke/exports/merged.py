# SPDX-License-Identifier: Apache-2.0
"""The model that answers as a Hugging Face folder in float16: the bundle's int4 weights, decoded, with the adapter added to them.

    W' = W + (alpha / rank) B A        of each linear that the adapter has (LoRA, equation 3), in float32, rounded once to float16

The weights are those that the adapter was trained on, not the original ones: with these it would answer differently.
Configuration and tokenizer are the original model's, which a bundle does not hold.
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
OF_STORED_WEIGHTS = ("torch_dtype", "quantization_config")  # in config.json: they do not hold of the merged ones
WEIGHTS_AT_ONCE = 1 << 20  # decoded in memory


def write_merged(
    bundle: Bundle, adapter: Mapping[str, np.ndarray], model: Path, weights: WeightSource, out: Path
) -> Path:
    """Writes the folder `out`: config.json, model.safetensors, tokenizer and licence. Memory is a few rows of weights.

    `adapter`: every piece by its full name, float32. `model`: the folder that the bundle was built from, and `weights`, what it
    was quantized from. Raises AdapterError where that is another model, where a number does not fit float16, and where something
    else is in the place of `out`.
    """
    config = bundle.manifest.model.config
    sources = sources_of(weights, config)
    _check_base(bundle, weights, sources, model)
    if weights.whole_norms:
        sources = named_sources(config)  # transformers reads w where the file has 1 + w
    whole = WholeFolder(out, AdapterError, _replaceable, personal=True)
    try:
        layout = {source.name: (np.float16, source.shape) for of in sources.values() for source in of}
        with TensorWriter(whole.new_file(SINGLE), layout) as writer:
            for group, of in sources.items():
                tensors = bundle.weights(group)
                for source in of:
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
        found = json.loads(read_plain(path))
    if not isinstance(found, dict):
        raise _unreadable(path, "no JSON object")
    return found


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Of a file of the model's folder."""
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
    """Rows of one tensor, as the original model has them."""
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
    """The norms, which a bundle keeps as they are: of another model, or another training of it, they differ."""
    for group, of in sources.items():
        tensors = bundle.weights(group)
        for source in of:
            there = source.name in checkpoint and checkpoint.shape(source.name) == source.shape
            if there and source.quantized:
                continue
            if not there or not np.array_equal(tensors[source.target], checkpoint.vector(source.name) + _added(source)):
                raise AdapterError(
                    f"model {model}",
                    got=f"another model: {source.name} differs",
                    expected="the one that the bundle was built from",
                    next_step="Name that one",
                )


def _replaceable(folder: Path) -> None:
    """Only what was written here before."""
    if not (folder / SINGLE).is_file() or not (folder / CONFIG).is_file():
        raise AdapterError(
            str(folder),
            got="a folder with something else in it",
            expected="no folder, or a model that was merged before",
            next_step="Choose another folder, or delete this one",
        )
