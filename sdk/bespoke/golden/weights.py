# SPDX-License-Identifier: Apache-2.0
"""Weights of the golden reference: those of a bundle, decoded, or those of the model before quantization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from bespoke.format.tensors import map_tensors
from bespoke.model.convert import SourceTensor, sources_of
from bespoke.model.spec import ModelSpec
from bespoke.model.weight_source import WeightSource

__all__ = ["BundleWeights", "SourceWeights", "Weights", "decode"]

DECODED_AT_ONCE = 2**16  # numbers
BOTH_NIBBLES = 0x0F0F

Rows = slice | np.ndarray
"""Rows of a table: a range that may end beyond it, or ids."""


class Weights(Protocol):
    """Each method reads what is asked for and keeps nothing. `outs` [rows, columns] are filled, in any precision."""

    def linear(self, group: str, name: str, outs: Sequence[torch.Tensor]) -> None: ...

    def small(self, group: str) -> Mapping[str, np.ndarray]:
        """Norms as they are used, and biases, by the names that a bundle gives them."""

    def table(self, group: str, rows: Rows, outs: Sequence[torch.Tensor]) -> None:
        """Rows of the embedding or the head's table, whichever `group` holds."""


class BundleWeights:
    """Weight files of a bundle by group, decoded by a second implementation of int4."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def linear(self, group: str, name: str, outs: Sequence[torch.Tensor]) -> None:
        stored = map_tensors(self._files[group])
        decode(stored[f"{name}.codes"], stored[f"{name}.scales"], outs)

    def small(self, group: str) -> Mapping[str, np.ndarray]:
        quantized = (".codes", ".scales")
        return {name: array for name, array in map_tensors(self._files[group]).items() if not name.endswith(quantized)}

    def table(self, group: str, rows: Rows, outs: Sequence[torch.Tensor]) -> None:
        stored = map_tensors(self._files[group])
        decode(stored["table.codes"][rows], stored["table.scales"][rows], outs)


class SourceWeights:
    """The weights that a build reads, as floats."""

    def __init__(self, source: WeightSource, model: ModelSpec) -> None:
        self._source = source
        self._groups = {
            group: {tensor.target: tensor for tensor in tensors}
            for group, tensors in sources_of(source, model.config).items()
        }

    def linear(self, group: str, name: str, outs: Sequence[torch.Tensor]) -> None:
        self._fill(self._groups[group][name], 0, outs)

    def small(self, group: str) -> Mapping[str, np.ndarray]:
        return {
            name: self._source.vector(tensor.name) + np.float32(tensor.add)
            for name, tensor in self._groups[group].items()
            if not tensor.quantized
        }

    def table(self, group: str, rows: Rows, outs: Sequence[torch.Tensor]) -> None:
        tensor = self._groups[group]["table"]
        if isinstance(rows, slice):
            self._fill(tensor, rows.start, outs)
            return
        ids, places = np.unique(rows, return_inverse=True)
        rows_of_ids = torch.from_numpy(
            np.concatenate([self._source.rows(tensor.name, int(id), int(id) + 1) for id in ids])[places]
        )
        for out in outs:
            out.copy_(rows_of_ids)

    def _fill(self, tensor: SourceTensor, first: int, outs: Sequence[torch.Tensor]) -> None:
        """Fills `outs` with rows from `first` on."""
        step = max(1, DECODED_AT_ONCE // tensor.shape[1])
        for start in range(0, len(outs[0]), step):
            stop = min(start + step, len(outs[0]))
            values = torch.from_numpy(self._source.rows(tensor.name, first + start, first + stop))
            for out in outs:
                out[start:stop] = values


def decode(codes: np.ndarray, scales: np.ndarray, outs: Sequence[torch.Tensor]) -> None:
    """Fills each of `outs` [rows, columns], of any precision, with (nibble - 8) * scale: low nibble first, groups of 32.

    Does not share code with `bespoke.model.quantize`. A few rows at a time, so that intermediates stay in the cache.
    """
    rows, columns = outs[0].shape
    step = max(1, DECODED_AT_ONCE // max(columns, 1))
    arrays = [out.numpy() for out in outs]
    for start in range(0, rows, step):
        wide = codes[start : start + step].astype(np.uint16)
        pairs = (wide | (wide << 4)) & BOTH_NIBBLES  # as little-endian bytes: low nibble, high nibble
        values = pairs.astype("<u2", copy=False).view(np.int8).astype(np.float32)
        values -= 8
        values *= np.repeat(scales[start : start + step].astype(np.float32), 32, axis=1)
        for array in arrays:
            array[start : start + step] = values[:, :columns]
