# SPDX-License-Identifier: Apache-2.0
"""Compute as the plan counts it, against counts by hand of the tiny Llama: two blocks of width 32 and 32, 4 heads, 2 of keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.benchmarks.compute_units import step_units
from tests.unit.personal_model.tiny import number_rows, tiny_bundle, tiny_folder

from bespoke.bundle.reader import read_bundle

__all__ = ["tiny_bundle", "tiny_folder"]

pytestmark = pytest.mark.xdist_group("tiny")

Q, K, V, OUT, GATE, UP, DOWN = 1024, 512, 512, 1024, 1024, 1024, 1024  # weights
BLOCK = Q + K + V + OUT + GATE + UP + DOWN
# Nothing needs a gradient of what the first block's q, k and v take in.
BACKWARD = 2 * (BLOCK + OUT + GATE + UP + DOWN) / (2 * BLOCK)
# A block's output is not computed again: the down projection is left out.
AGAIN = (BLOCK - DOWN) / BLOCK


@pytest.mark.parametrize(
    ("method", "units"),
    [
        ("mezo", 2 * 2),  # two rows, two forward passes each
        ("mebp", 2 * 2 * (1 + AGAIN + BACKWARD)),  # two micro-batches of two rows
        ("mesp", 2 * (1 + BACKWARD)),  # without a budget it keeps all and computes nothing again
    ],
)
def test_a_step_is_counted_in_forward_passes_of_a_row(tiny_bundle: Path, method: str, units: float) -> None:
    with read_bundle(tiny_bundle) as bundle:
        assert step_units(bundle, method, number_rows(1)[0]) == pytest.approx(units, rel=1e-12)
