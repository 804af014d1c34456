# SPDX-License-Identifier: Apache-2.0
"""Reader of linears that compressed-tensors packed as symmetric int4 ("w4a16", format pack-quantized), bit by bit.

A linear X is stored as three tensors: X.weight_packed (int32 [out, in / 8], the code n = value + 8, low bits first),
X.weight_scale ([out, in / group] or [out, 1]) and X.weight_shape. In little-endian order these are our codes. A scale
that fp16 holds exactly is our scale too, repeated for each 32 weights of its group. If a scale does not fit fp16, the
rows are decoded and quantized again. Tensors that are not packed are float.
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
from bespoke.model.checkpoint import Checkpoint
from bespoke.model.quantize import GROUP, dequantize
from bespoke.model.weight_source import WeightSource, check_rows

__all__ = ["METHOD", "PackedCheckpoint", "open_weights"]

METHOD = "compressed-tensors"  # quantization_config.quant_method
_PACKED, _SCALE, _SHAPE = "_packed", "_scale", "_shape"  # behind the name of a weight


def open_weights(folder: Path | str) -> WeightSource:
    """The weights of a Hugging Face folder in safetensors, as floats or packed by compressed-tensors.

    Raises ModelError for damaged files, UnsupportedModel for any form of compressed-tensors but symmetric int4.
    """
    checkpoint = Checkpoint.open(folder)
    path = Path(folder) / "config.json"
    try:
        config = json.loads(read_plain(path)) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        config = {}  # read_config says what is wrong with it
    settings = config.get("quantization_config") if isinstance(config, dict) else None
    if isinstance(settings, dict) and settings.get("quant_method") == METHOD:
        _check_settings(path, settings)
        return PackedCheckpoint(checkpoint)
    return checkpoint


class PackedCheckpoint(WeightSource):
    """A checkpoint whose packed linears appear under the names of their float weights."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._inner = checkpoint
        names = checkpoint.names()
        ordered = [name for name in names if name.endswith(("weight_g_idx", "weight_zero_point"))]
        if ordered:
            raise UnsupportedModel(
                f"tensor {ordered[0]}",
                got="groups of compressed-tensors that are not symmetric or not in the order of columns",
                expected="symmetric groups of neighbours",
                next_step="Choose a model without it, or the float model",
            )
        self._packed = {name.removesuffix(_PACKED) for name in names if name.endswith(f"weight{_PACKED}")}
        parts = {name + part for name in self._packed for part in (_PACKED, _SCALE, _SHAPE)}
        self._names = sorted((set(names) - parts) | self._packed)
        for name in self._packed:
            self._check(name)

    def names(self) -> list[str]:
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._packed:
            return self._inner.shape(name)
        out, words = self._inner.shape(name + _PACKED)
        return out, 8 * words

    def dtype(self, name: str) -> str:
        return "int4" if name in self._packed else self._inner.dtype(name)

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        if name not in self._packed:
            return self._inner.rows(name, start, stop)
        codes, scales = self._read(name, start, stop)
        units = dequantize(codes, np.ones(scales.shape, np.float16), self.shape(name)[1])
        return units * np.repeat(scales, GROUP, axis=1)

    def int4_rows(self, name: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray] | None:
        if name not in self._packed:
            return None
        codes, scales = self._read(name, start, stop)
        with np.errstate(over="ignore"):
            rounded = scales.astype(np.float16)
        return (codes, rounded) if np.array_equal(rounded.astype(np.float32), scales) else None

    def _read(self, name: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes uint8 [rows, in / 2] and scales float32 [rows, in / 32]."""
        shape = self.shape(name)
        check_rows(name, start, stop, shape[0])
        words = self._inner.stored_rows(name + _PACKED, start, stop)
        scales = self._inner.rows(name + _SCALE, start, stop)
        if not np.isfinite(scales).all():
            raise ModelError(
                f"tensor {name}{_SCALE}",
                got="NaN or infinity",
                expected="finite scales",
                next_step="Download the folder again",
            )
        return words.view(np.uint8), np.repeat(scales, shape[1] // GROUP // scales.shape[1], axis=1)

    def _check(self, name: str) -> None:
        shape, scale = self._inner.shape(name + _PACKED), self._inner.shape(name + _SCALE)
        columns = 8 * shape[-1]
        kinds = [self._inner.stored_dtype(name + part) for part in (_PACKED, _SHAPE)]
        if kinds != ["I32", "I64"]:
            raise ModelError(
                f"tensor {name}",
                got=f"words and shape of dtype {' and '.join(kinds)}",
                expected="I32 and I64",
                next_step="Download the folder again",
            )
        whole = (
            self._inner.stored_rows(name + _SHAPE, 0, 2).tolist() if self._inner.shape(name + _SHAPE) == (2,) else []
        )
        fits = len(shape) == len(scale) == 2 and scale[0] == shape[0] and scale[1] and columns % (GROUP * scale[1]) == 0
        if not fits or whole != [shape[0], columns]:
            raise UnsupportedModel(
                f"tensor {name}",
                got=f"{list(shape)} words, scales {list(scale)}, shape {whole}",
                expected=f"int4 in groups of a multiple of {GROUP} that fill each row",
                next_step="Give the float model",
            )


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise UnsupportedModel for another format, and if activations or the KV cache are quantized too."""

    def refuse(field: str, got: Any, expected: str) -> None:
        raise UnsupportedModel(
            f"{path}: quantization_config.{field}",
            got=got if isinstance(got, str) else shown_json(got, 200),
            expected=expected,
            next_step="Choose a model in w4a16, symmetric, or give the float model",
        )

    if settings.get("format") != "pack-quantized":
        refuse("format", settings.get("format"), "pack-quantized")
    if settings.get("kv_cache_scheme") is not None:
        refuse("kv_cache_scheme", settings["kv_cache_scheme"], "none")
    groups = settings.get("config_groups")
    schemes = list(groups.values()) if isinstance(groups, dict) else []
    if not schemes or not all(
        isinstance(scheme, dict) and isinstance(scheme.get("weights"), dict) for scheme in schemes
    ):
        refuse("config_groups", groups, "groups with their weights' settings")
    for scheme in schemes:
        weights = scheme["weights"]
        for field, expected in (("num_bits", 4), ("type", "int"), ("symmetric", True), ("dynamic", False)):
            if weights.get(field, expected) != expected:
                refuse(f"config_groups: weights.{field}", weights[field], f"{expected!r}")
        for field in ("input_activations", "output_activations"):
            if scheme.get(field) is not None:
                refuse(f"config_groups: {field}", scheme[field], "none, as in w4a16")
