# SPDX-License-Identifier: Apache-2.0
"""What a server makes of the numbers of a round."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import scipy.stats

from bespoke.rules.aggregation import Along, combined, direction_of, step_of
from bespoke.rules.federation import COEFFICIENT_BITS

RANDOM = np.random.default_rng(4)


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 12, 48])
def test_numbers_of_several_devices_become_one(count: int) -> None:
    numbers = RANDOM.standard_normal(count).tolist()
    assert combined(numbers) == pytest.approx(statistics.fmean(numbers), rel=1e-12)
    assert combined(numbers, "median") == pytest.approx(statistics.median(numbers), rel=1e-12)
    if count >= 10:
        assert combined(numbers, "trimmed_mean") == pytest.approx(scipy.stats.trim_mean(numbers, 0.2), rel=1e-12)


def test_a_trimmed_mean_of_few_numbers_leaves_out_the_ends() -> None:
    assert combined([-100.0, 1.0, 2.0, 100.0], "trimmed_mean") == 1.5
    assert combined([-100.0, 1.0, 100.0], "trimmed_mean") == 1.0
    assert combined([7.0], "trimmed_mean") == 7.0


@pytest.mark.parametrize("combine", ["median", "trimmed_mean"])
def test_few_dishonest_devices_do_not_decide_a_direction(combine: str) -> None:
    honest = RANDOM.normal(1.0, 0.1, 10).tolist()
    assert abs(combined([*honest, 1e3, 1e3], combine) - 1) < 0.2  # type: ignore[arg-type]
    assert combined([*honest, 1e3, 1e3]) > 100


def test_devices_share_directions_in_turn() -> None:
    assert [direction_of(device, 4) for device in range(6)] == [0, 1, 2, 3, 0, 1]
    assert [direction_of(device, 6) for device in range(6)] == list(range(6))


def test_a_step_is_the_mean_estimate_along_its_directions() -> None:
    """theta - rate mean_j combine(v_j) (c z_j + c' G_j), but for the rounding of coefficients."""
    z, g = RANDOM.standard_normal((2, 3, 50))
    numbers = {0: [0.5, 1.5], 2: [-3.0], 1: [0.25, 0.75]}
    step = step_of(numbers, 0.1 / 3, coefficient=0.7, guidance_coefficient=5.0)
    moved = sum(one.coefficient * z[one.number] + one.guidance_coefficient * g[one.number] for one in step)
    means = np.array([1.0, 0.5, -3.0])
    np.testing.assert_allclose(moved, 0.1 * (means @ (0.7 * z + 5.0 * g)) / 3, atol=2e-3)


def test_a_step_lists_directions_in_order_with_few_bits() -> None:
    step = step_of({3: [1 / 3], 1: [1 / 7], 2: []}, 1e-3, guidance_coefficient=0.1)
    assert [one.number for one in step] == [1, 3]
    for one in step:
        for number in one[1:]:
            assert float(np.frexp(number)[0] * 2**COEFFICIENT_BITS).is_integer()
    assert step_of({}, 1.0) == []
    assert step_of({0: [2.0]}, 0.5) == [Along(0, 1.0, 0.0)]
