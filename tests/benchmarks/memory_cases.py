# SPDX-License-Identifier: Apache-2.0
"""Models, lengths and budgets whose peak of memory is measured."""

from __future__ import annotations

from typing import NamedTuple

from tests.benchmarks.core_bundles import Bundle, Wanted, first_that_fits, smallest_bundle


class Case(NamedTuple):
    """MB. A peak above the larger budget fails. The papers' are peaks on phones, with int4 weights and rank 8, of whole apps."""

    model: str
    length: int
    budgets_mb: tuple[float, float]
    mesp_paper: float | None
    mebp_paper: float | None


CASES = [
    Case("Qwen2.5-0.5B", 256, (45, 64), 136, 320),
    Case("Qwen2.5-1.5B", 256, (65, 110), 263, 460),
    Case("Qwen2.5-3B", 256, (85, 160), 368, 662),
    Case("gemma-3-1b-it", 256, (120, 120), None, 569),
    Case("Qwen2.5-0.5B", 1024, (64, 96), 514, None),
    Case("Qwen2.5-1.5B", 1024, (100, 150), 799, 994),
]


def bundles_of(case: Case) -> list[Bundle]:
    """`mesp` within the budgets, and at 256 tokens `mebp` with the least that it can do with."""
    found = [first_that_fits(Wanted(case.model, "mesp", case.length, None), *case.budgets_mb)]
    return found + ([smallest_bundle(Wanted(case.model, "mebp", case.length, None))] if case.length == 256 else [])
