# SPDX-License-Identifier: Apache-2.0
"""Which rows the gate looks at: all of few, and of many a sample that is bounded, spread, and blind to their lengths."""

from __future__ import annotations

import numpy as np
import pytest

from bespoke.rules.judged import JUDGED_POSITIONS, judged_rows
from tests.unit.rules.numbers import integers


def test_few_rows_are_all_judged() -> None:
    assert judged_rows([]) == []
    assert judged_rows([65] * 64) == list(range(64))
    assert len(judged_rows([65] * 65)) == 64


@pytest.mark.parametrize("rows", [100, 12_345, 1_000_000])
def test_of_many_rows_so_many_are_judged_as_are_allowed_and_from_everywhere(rows: int) -> None:
    chosen = judged_rows([65] * rows)
    assert len(chosen) == JUDGED_POSITIONS // 64
    gaps = np.diff([-1, *chosen, rows])
    assert gaps.min() >= 1
    assert gaps.max() <= 2 * rows / len(chosen) + 1


@pytest.mark.parametrize(
    "lengths", [[120, 7] * 500, [300] + [3] * 9_000, list(range(2, 900))], ids=["turns", "one", "rising"]
)
def test_the_sample_keeps_within_the_bound_and_looks_like_the_whole(lengths: list[int]) -> None:
    chosen = judged_rows(lengths)
    positions = [lengths[number] - 1 for number in chosen]
    assert 0.7 * JUDGED_POSITIONS <= sum(positions) <= JUDGED_POSITIONS
    assert np.mean(positions) == pytest.approx(np.mean(lengths) - 1, rel=0.25)


def test_a_row_longer_than_the_bound_is_judged_alone() -> None:
    assert len(judged_rows([3 * JUDGED_POSITIONS] * 5)) == 1


def test_the_draw_is_the_rule_in_plain_integers() -> None:
    rows, strata = 12_345, 64
    expected = []
    for j in range(strata):
        first, end = j * rows // strata, (j + 1) * rows // strata
        expected.append(first + integers([j, 0, (1 << 31) + 6, 0], [0, 0])[0] * (end - first) // 2**32)
    assert judged_rows([65] * rows) == expected
