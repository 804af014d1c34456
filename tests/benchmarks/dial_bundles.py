# SPDX-License-Identifier: Apache-2.0
"""One model built for each budget of the dial."""

from __future__ import annotations

from tests.benchmarks.core_bundles import Bundle, DoesNotFit, Wanted, bundle
from tests.benchmarks.figures import Cell
from tests.benchmarks.speed_cases import CASES
from tests.benchmarks.step_turns import LENGTH

BUDGETS_MB = (64, 96, 128, 192, 256, 384, 512)


def bundles_that_fit() -> tuple[dict[float, Bundle], dict[float, list[Cell]]]:
    """Bundles by budget, and rows of the table for budgets that are too small."""
    bundles: dict[float, Bundle] = {}
    refusals: dict[float, list[Cell]] = {}
    for budget in BUDGETS_MB:
        try:
            bundles[budget] = bundle(Wanted(CASES[0].model, "mesp", LENGTH, budget))
        except DoesNotFit as refused:
            refusals[budget] = [budget, *[None] * 4, f"does not fit: at least {refused.smallest_mb:g} MB"]
    return bundles, refusals
