# SPDX-License-Identifier: Apache-2.0
"""Report of a build."""

from __future__ import annotations

from dataclasses import dataclass

from bespoke.compiler.quantization_cost import QuantizationCost
from bespoke.compiler.rehearsal import RehearsalReport
from bespoke.data.prepare import DataReport

__all__ = ["BuildReport"]


@dataclass(frozen=True)
class BuildReport:
    """Report of a build.

    data:          what happened to the rows of the data file; None without a file
    quantization:  the cost of int4 to the model
    rehearsal:     what the bundle rehearses; None if it does not
    """

    data: DataReport | None
    quantization: QuantizationCost
    rehearsal: RehearsalReport | None
