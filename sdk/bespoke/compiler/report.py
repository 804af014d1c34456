# SPDX-License-Identifier: Apache-2.0
"""What a build has to say beside the bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bespoke.data.prepare import DataReport

__all__ = ["BuildReport"]


@dataclass(frozen=True)
class BuildReport:
    """`data`: what became of the rows of the data file, None without one. `notes`: a sentence for each thing that the build takes
    otherwise than its files say, or leaves out."""

    data: DataReport | None
    notes: tuple[str, ...]
