# SPDX-License-Identifier: Apache-2.0
"""The weights of a GGUF file under transformers' names, a few rows at a time.

Float tensors are read, quantized tensors are decoded by the package gguf. Our int4 holds the numbers of Q4_0, TQ1_0 and
TQ2_0 exactly:

    Q4_0          32 weights: scale d (fp16), code n of 0 to 15, low nibbles the first 16 weights; a weight is (n - 8) d
    TQ1_0, TQ2_0  256 weights: one scale d, code q of 0, 1, 2; a weight is (q - 1) d, which is (n - 8) d for n = q + 7

Rows that llama.cpp permutes (names.py) are put back into transformers' order.
"""

from __future__ import annotations

from math import prod

import numpy as np

from bespoke.errors import MissingDependency, ModelError, UnsupportedModel
from bespoke.format.gguf_header import GgufHeader, GgufTensor
from bespoke.format.plain_file import open_plain
from bespoke.model.architecture import ModelConfig
from bespoke.model.convert import named_sources
from bespoke.model.gguf.names import reordered_heads, tensor_names
from bespoke.model.quantize import GROUP
from bespoke.model.weight_source import WeightSource, check_rows

with MissingDependency.unless_there("A model as a GGUF file", "gguf", "gguf"):
    import gguf

__all__ = ["GgufCheckpoint"]

_Type = gguf.GGMLQuantizationType
_FLOATS = {_Type.F32: ("float32", "<f4"), _Type.F16: ("float16", "<f2")}
_TERNARY = (_Type.TQ1_0, _Type.TQ2_0)
# Tensors that are no weights: RoPE's factors are read with the configuration.
_NO_WEIGHTS = ("rope_freqs.weight",)


class GgufCheckpoint(WeightSource):
    """The tensors of a GGUF file. A tensor that `config` has no place for keeps GGUF's name."""

    whole_norms = True

    def __init__(self, header: GgufHeader, config: ModelConfig) -> None:
        self._path = header.path
        self._tensors: dict[str, tuple[str, GgufTensor]] = {}  # transformers' name -> GGUF's name, tensor
        self._heads: dict[str, int] = {}
        sources = [source for group in named_sources(config).values() for source in group]
        names = tensor_names(config, sources)
        for stored, tensor in header.tensors.items():
            if stored in _NO_WEIGHTS:
                continue
            self._check_size(header, stored, tensor)
            source = names.get(stored)
            name = stored if source is None else source.name
            self._tensors[name] = stored, tensor
            if source is not None and (heads := reordered_heads(config, source)) is not None:
                self._check_heads(stored, tensor, heads)
                self._heads[name] = heads

    def names(self) -> list[str]:
        return sorted(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name)[1].shape

    def dtype(self, name: str) -> str:
        kind = _Type(self._tensor(name)[1].kind)
        return _FLOATS[kind][0] if kind in _FLOATS else "bfloat16" if kind == _Type.BF16 else kind.name

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        kind, raw = self._raw(name, start, stop)
        try:
            return gguf.quants.dequantize(raw, kind).astype(np.float32, copy=False).reshape(-1, *self.shape(name)[1:])
        except NotImplementedError:
            raise UnsupportedModel(
                f"tensor {self._tensor(name)[0]} of {self._path}",
                got=f"the type {kind.name}",
                expected="a type that the package gguf decodes",
                next_step="Choose a file in Q4_0, Q8_0 or F16",
            ) from None

    def int4_rows(self, name: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray] | None:
        kind = _Type(self._tensor(name)[1].kind)
        if kind != _Type.Q4_0 and kind not in _TERNARY:
            return None
        _, raw = self._raw(name, start, stop)
        codes, scales = _from_q4_0(raw) if kind == _Type.Q4_0 else _from_ternary(raw, kind)
        if not np.isfinite(scales).all():
            raise ModelError(
                f"tensor {self._tensor(name)[0]} of {self._path}",
                got="a scale that is NaN or infinite",
                expected="finite scales",
                next_step="Download the file again",
            )
        return codes, scales

    def _raw(self, name: str, start: int, stop: int) -> tuple[gguf.GGMLQuantizationType, np.ndarray]:
        """Rows [start, stop) as stored: [rows, bytes], or [rows, numbers] of a float tensor."""
        stored, tensor = self._tensor(name)
        kind, rows = _Type(tensor.kind), tensor.shape[0]
        check_rows(name, start, stop, rows)
        if len(tensor.shape) == 1:  # GGUF stores a vector as a single row
            return kind, self._read(stored, tensor, 0, 1)[:, start:stop]
        if name not in self._heads:
            return kind, self._read(stored, tensor, start, stop)
        head = rows // self._heads[name]
        first, last = start // head * head, -(-stop // head) * head
        raw = self._read(stored, tensor, first, last)
        back = raw.reshape(-1, head // 2, 2, raw.shape[-1]).swapaxes(1, 2).reshape(raw.shape)
        return kind, np.ascontiguousarray(back[start - first : stop - first])

    def _read(self, stored: str, tensor: GgufTensor, start: int, stop: int) -> np.ndarray:
        row = _row_bytes(tensor)
        try:
            with open_plain(self._path) as file:
                file.seek(tensor.offset + start * row)
                data = file.read((stop - start) * row)
        except OSError as error:
            raise self._damaged(error.strerror or str(error), "a readable file") from None
        if len(data) != (stop - start) * row:
            raise self._damaged(f"an end within {stored}", "a whole file")
        raw = np.frombuffer(data, np.uint8).reshape(stop - start, row)
        kind = _Type(tensor.kind)
        return raw.view(_FLOATS[kind][1]) if kind in _FLOATS else raw

    def _check_size(self, header: GgufHeader, name: str, tensor: GgufTensor) -> None:
        try:
            block, _ = gguf.GGML_QUANT_SIZES[_Type(tensor.kind)]
        except (ValueError, KeyError):
            raise UnsupportedModel(
                f"tensor {name} of {header.path}",
                got=f"ggml's type number {tensor.kind}",
                expected="a type that the package gguf knows",
                next_step="Choose a file in Q4_0, Q8_0 or F16",
            ) from None
        size = _row_bytes(tensor) * prod(tensor.shape[:-1])
        if tensor.shape[-1] % block or tensor.offset + size > header.size:
            raise self._damaged(
                f"tensor {name} of shape {list(tensor.shape)} at {tensor.offset}", f"it within {header.size} bytes"
            )

    def _check_heads(self, name: str, tensor: GgufTensor, heads: int) -> None:
        """RoPE turns pairs of rows, so that a head has an even number of them."""
        if tensor.shape[0] % (2 * heads):
            raise self._damaged(
                f"tensor {name} of shape {list(tensor.shape)} for {heads} heads", "an even number of rows for each head"
            )

    def _tensor(self, name: str) -> tuple[str, GgufTensor]:
        if name not in self._tensors:
            raise ModelError(
                f"tensor {name}",
                got=f"none of this name in {self._path}",
                expected="a tensor of this name",
                next_step="Check that the download is complete",
            )
        return self._tensors[name]

    def _damaged(self, got: str, expected: str) -> ModelError:
        return ModelError(f"GGUF file {self._path}", got=got, expected=expected, next_step="Download the file again")


def _row_bytes(tensor: GgufTensor) -> int:
    block, size = gguf.GGML_QUANT_SIZES[_Type(tensor.kind)]
    return tensor.shape[-1] // block * size


def _from_q4_0(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(codes, scales) of blocks of 18 bytes, uint8 [rows, 18 * groups]: the inverse of `bespoke.exports.gguf_base.q4_0`."""
    blocks = raw.reshape(len(raw), -1, 18)
    scales = np.ascontiguousarray(blocks[:, :, :2]).view("<f2")[:, :, 0].astype(np.float16)
    low, high = blocks[:, :, 2:] & 0x0F, blocks[:, :, 2:] >> 4  # weights 0 to 15, 16 to 31
    codes = np.concatenate([low[:, :, 0::2] | (low[:, :, 1::2] << 4), high[:, :, 0::2] | (high[:, :, 1::2] << 4)], 2)
    return codes.reshape(len(raw), -1), scales


def _from_ternary(raw: np.ndarray, kind: gguf.GGMLQuantizationType) -> tuple[np.ndarray, np.ndarray]:
    """(codes, scales). A block ends with its scale in two bytes; decoded with a scale of 1 instead, it gives q - 1."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = raw.reshape(len(raw), -1, size).copy()
    scales = np.ascontiguousarray(blocks[:, :, -2:]).view("<f2")[:, :, 0].astype(np.float16)
    blocks[:, :, -2:] = np.array([1], "<f2").view(np.uint8)
    units = gguf.quants.dequantize(blocks.reshape(len(raw), -1), kind)  # -1, 0, 1
    nibbles = (units + 8).astype(np.uint8)
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4), np.repeat(scales, 256 // GROUP, axis=1)
