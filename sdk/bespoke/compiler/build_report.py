# SPDX-License-Identifier: Apache-2.0
"""What a build says of the bundle that it wrote."""

from __future__ import annotations

from dataclasses import dataclass

from bespoke.compiler.quantization_cost import QuantizationCost
from bespoke.data.prepare import DataReport

__all__ = ["BuildReport"]


@dataclass(frozen=True)
class BuildReport:
    """`data`: what became of the rows of the data file, None without one. `quantization`: what int4 cost the model."""

    data: DataReport | None
    quantization: QuantizationCost
