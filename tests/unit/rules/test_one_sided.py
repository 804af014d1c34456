# SPDX-License-Identifier: Apache-2.0
"""Devices whose numbers always lie at an end are left out of rounds, and no others."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from bespoke.rules.one_sided import LEAST_ROUNDS, REMEMBERED, always_outer, outer_shares


def test_a_quarter_at_each_end_is_outer() -> None:
    numbers = [(0, [float(number)]) for number in (3, 0, 7, 1, 6, 2, 5, 4)]
    assert outer_shares(numbers) == [0, 1, 1, 1, 1, 0, 0, 0]


def test_few_numbers_are_not_compared() -> None:
    assert outer_shares([(0, [1.0]), (0, [2.0]), (0, [30.0]), (1, [5.0])]) == [None] * 4


def test_equal_numbers_of_many_are_no_end() -> None:
    """In first rounds most numbers are as large as the clip."""
    assert outer_shares([(0, [1.0])] * 7 + [(0, [0.5])]) == [0] * 7 + [1]
    assert outer_shares([(0, [1.0])] * 2 + [(0, [float(n)]) for n in range(2, 10)])[:2] == [1, 1]


def test_the_share_is_over_all_numbers_of_a_device() -> None:
    numbers = [(0, [float(n), float(n), 0.0]) for n in range(8)]
    assert outer_shares(numbers)[0] == pytest.approx(2 / 3)


@pytest.mark.parametrize("hostile_sends", [-1.0, 1.0])
def test_those_that_always_collude_are_found_and_honest_ones_are_not(hostile_sends: float) -> None:
    """Devices differ from each other in each round and for all of it."""
    random = np.random.default_rng(3)
    own, shares_of = random.normal(0, 0.1, 80), defaultdict(list)
    for _ in range(100):
        chosen = random.permutation(80)[:48]
        values = np.clip(own[chosen] + random.normal(0.1, 0.5, 48), -1, 1)
        values[chosen < 8] = hostile_sends
        numbers = [(at % 4, [float(value)]) for at, value in enumerate(values)]
        for device, share in zip(chosen, outer_shares(numbers), strict=True):
            assert share is not None
            shares_of[device].append(share)
    assert {device for device, shares in shares_of.items() if always_outer(shares[-REMEMBERED:])} == set(range(8))


def test_nobody_is_judged_early() -> None:
    assert not always_outer([1.0] * (LEAST_ROUNDS - 1))
    assert always_outer([1.0] * LEAST_ROUNDS)
    assert always_outer([1.0] * 36 + [0.0] * 4)
    assert not always_outer([1.0] * 35 + [0.0] * 5)
