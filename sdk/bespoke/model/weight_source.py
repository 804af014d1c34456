# SPDX-License-Identifier: Apache-2.0
"""What a build reads weights from: the tensors of a model by transformers' names, a few rows at a time.

A source may hold some linears in a form that is int4 in groups of 32 already (GGUF's Q4_0, compressed-tensors): these come in
as they are, codes and scales, and are not quantized a second time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import prod

import numpy as np

from bespoke.errors import ModelError

__all__ = ["WeightSource"]


class WeightSource(ABC):
    """Opening one reads headers only; `rows` and `int4_rows` read what is asked for and keep nothing."""

    whole_norms = False
    """Whether norms of 1 + w are stored as that sum; transformers stores w."""

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """ModelError, naming what is there instead, where no tensor has this name."""

    @abstractmethod
    def dtype(self, name: str) -> str:
        """float32, float16, bfloat16, or the name of a quantized form."""

    @abstractmethod
    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of the first axis as a new float32 array."""

    def int4_rows(self, name: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The same rows as (codes, scales) of `quantize` without a changed bit; None where the tensor is not in such a form."""
        return None

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    def vector(self, name: str) -> np.ndarray:
        """The whole of a tensor as float32; for norms and biases."""
        return self.rows(name, 0, self.shape(name)[0])

    def chunks(self, name: str, bytes_at_once: int = 2**19) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows) over the whole tensor, each chunk at most `bytes_at_once` of float32 or one row."""
        for start, stop in self.row_ranges(name, bytes_at_once):
            yield start, self.rows(name, start, stop)

    def row_ranges(self, name: str, bytes_at_once: int = 2**19) -> Iterator[tuple[int, int]]:
        """[start, stop) of those chunks. Half a megabyte stays in a core's cache while it is quantized."""
        shape = self.shape(name)
        step = max(1, bytes_at_once // max(1, 4 * prod(shape[1:])))
        for start in range(0, shape[0], step):
            yield start, min(shape[0], start + step)


def check_rows(name: str, start: int, stop: int, rows: int) -> None:
    """ModelError for rows that a tensor of `rows` rows does not have."""
    if not 0 <= start <= stop <= rows:
        raise ModelError(
            f"tensor {name}",
            got=f"rows {start} to {stop}",
            expected=f"rows within 0 to {rows}",
            next_step="Check that the configuration belongs to these weights",
        )
