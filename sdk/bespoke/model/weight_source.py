# SPDX-License-Identifier: Apache-2.0
"""The interface of a build's weights: a model's tensors by transformers' names, a few rows at a time.

A source may hold linears that are int4 in groups of 32 already (GGUF's Q4_0, compressed-tensors). A build takes their codes
and scales unchanged and does not quantize them a second time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import prod

import numpy as np

from bespoke.errors import ModelError

__all__ = ["WeightSource"]


class WeightSource(ABC):
    """The tensors of a model. Opening reads headers only; `rows` and `int4_rows` read a call's rows and keep nothing."""

    whole_norms = False
    """Whether Gemma's norm weights are stored as 1 + w; transformers stores w."""

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor. Raises ModelError if there is no tensor of this name."""

    @abstractmethod
    def dtype(self, name: str) -> str:
        """Dtype of a tensor: float32, float16, bfloat16, or the name of a quantized format."""

    @abstractmethod
    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of the first axis as a new float32 array."""

    def int4_rows(self, name: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The stored (codes, scales) of these rows in the format of `quantize`; None for a tensor in any other format."""
        return None

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    def vector(self, name: str) -> np.ndarray:
        """A whole tensor as float32; for norms and biases."""
        return self.rows(name, 0, self.shape(name)[0])

    def chunks(self, name: str, bytes_at_once: int = 2**19) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, rows) over the whole tensor. A chunk is at most `bytes_at_once` of float32, or a single row."""
        for start, stop in self.row_ranges(name, bytes_at_once):
            yield start, self.rows(name, start, stop)

    def row_ranges(self, name: str, bytes_at_once: int = 2**19) -> Iterator[tuple[int, int]]:
        """[start, stop) of each chunk. Half a megabyte stays in a core's cache while it is quantized."""
        shape = self.shape(name)
        step = max(1, bytes_at_once // max(1, 4 * prod(shape[1:])))
        for start in range(0, shape[0], step):
            yield start, min(shape[0], start + step)


def check_rows(name: str, start: int, stop: int, rows: int) -> None:
    """Raise ModelError unless [start, stop) lies within a tensor of `rows` rows."""
    if not 0 <= start <= stop <= rows:
        raise ModelError(
            f"tensor {name}",
            got=f"rows {start} to {stop}",
            expected=f"rows within 0 to {rows}",
            next_step="Check that the configuration belongs to these weights",
        )
