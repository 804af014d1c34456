# SPDX-License-Identifier: Apache-2.0
"""Drafts of what follows in a text, held against a search of the whole text for each token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bespoke.rules.drafts import ENDING, LONGEST_PAUSE, Drafts
from tests.support.checks import new_seed

MOST = 3


def searched(seen: Sequence[int], most: int) -> list[int]:
    """The draft by its definition, without a pause."""
    for place in range(len(seen) - 1, ENDING - 1, -1):
        if list(seen[place - ENDING : place]) == list(seen[-ENDING:]):
            draft: list[int] = []
            while len(draft) < most:
                draft.append((list(seen) + draft)[place + len(draft)])
            return draft
    return []


def test_a_draft_is_what_followed_the_same_tokens_latest() -> None:
    numbers = np.random.default_rng(new_seed())
    found = 0
    for vocabulary in (2, 3, 9):
        text = numbers.integers(0, vocabulary, 120).tolist()
        for end in range(1, len(text)):
            fresh = Drafts().next(text[:end], MOST)
            assert fresh == searched(text[:end], MOST), text[:end]
            found += bool(fresh)
    assert found > 200


def test_a_draft_goes_on_with_its_own_beginning() -> None:
    assert Drafts().next([1, 5, 5, 5, 5], 4) == [5, 5, 5, 5]
    assert Drafts().next([7, 1, 2, 1, 2, 1], 5) == [2, 1, 2, 1, 2]


@pytest.mark.parametrize("text", [[], [1], [1, 1], [1, 2, 3, 4, 5, 6]])
def test_without_a_place_there_is_no_draft(text: list[int]) -> None:
    assert Drafts().next(text, MOST) == []


def test_wrong_drafts_make_longer_and_longer_pauses_until_one_is_right() -> None:
    drafts, seen = Drafts(), [1, 2, 3]
    wrong: list[int] = []
    for new in range(10, 210):  # 1, 2, 3 comes again and again, and another token behind it
        seen += [1, 2, 3]
        if drafts.next(seen, MOST):
            wrong.append(len(seen))
        seen.append(new)
    between = np.diff(wrong)
    assert between[0] <= 8
    assert list(between) == sorted(between)
    assert LONGEST_PAUSE <= between[-1] <= LONGEST_PAUSE + 8
    while not drafts.next(seen, MOST):
        seen += [1, 2, 3]
    for _ in range(20):
        draft = drafts.next(seen, MOST)
        assert draft, seen[-6:]
        seen += draft
