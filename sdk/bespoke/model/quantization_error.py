# SPDX-License-Identifier: Apache-2.0
"""Difference between a bundle's weights and the weights of the source model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["QuantizationError"]


@dataclass
class QuantizationError:
    """Counts and squared error of matrix weights. `kept` weights came as int4 and are unchanged."""

    kept: int = 0
    quantized: int = 0
    squared_error: float = 0.0
    squared: float = 0.0

    def add(self, weights: np.ndarray, decoded: np.ndarray) -> None:
        self.quantized += weights.size
        self.squared_error += float(np.square(decoded - weights, dtype=np.float32).sum(dtype=np.float64))
        self.squared += float(np.square(weights, dtype=np.float32).sum(dtype=np.float64))

    @property
    def relative(self) -> float:
        """Root mean square of the error, divided by that of the quantized weights."""
        return float((self.squared_error / self.squared) ** 0.5) if self.squared else 0.0

    def __str__(self) -> str:
        parts = [f"{self.quantized:,} weights quantized, with an error of {self.relative:.1%} of their size"]
        if self.kept:
            parts.append(f"{self.kept:,} taken as they were")
        return ", ".join(parts if self.quantized else parts[1:] or ["no weights"])
