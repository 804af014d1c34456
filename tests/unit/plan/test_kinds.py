# SPDX-License-Identifier: Apache-2.0
"""What a plan may hold, listed by hand: every kind of value there could be is tried, and these are taken and no others."""

from __future__ import annotations

import pytest

from bespoke.errors import PlanError
from tests.unit.plan.kinds import ALLOWED, RATE, REFUSED, TOKENS, is_allowed, kinds, sample, small, taken_of, value


def test_of_all_kinds_of_value_these_are_taken_and_no_others() -> None:
    draft, document = small()
    assert taken_of(draft.read, document) == {kind for kind in kinds() if is_allowed(kind)}
    assert len(kinds()) == 7776


def test_the_table_that_other_languages_read_says_the_same() -> None:
    from bespoke.plan.kinds import rules_document

    rows = {
        (row["role"], row["lifetime"], row["place"], row["dtype"]): tuple(
            range(row["least_rank"], row["most_rank"] + 1)
        )
        for row in rules_document()["values"]
    }
    assert rows == {kind: tuple(ranks) for kind, ranks in ALLOWED.items()}


def test_an_option_of_the_method_is_a_scalar_of_training() -> None:
    draft, document = sample()
    value(document, RATE)["place"]["name"] = "option.momentum"
    assert draft.read(document)


def test_an_array_of_the_method_comes_with_the_batch_of_training() -> None:
    draft, document = sample()
    value(document, TOKENS)["place"]["name"] = "array.rejected"
    assert draft.read(document)


def test_the_sample_is_sound() -> None:
    draft, document = sample()
    assert draft.read(document).replayable


@pytest.mark.parametrize("what", REFUSED)
def test_what_could_harm_is_refused(what: str) -> None:
    draft, document = sample()
    change, named, got = REFUSED[what]
    change(document)
    with pytest.raises(PlanError) as caught:
        draft.read(document)
    assert named in caught.value.subject, str(caught.value)
    assert got in caught.value.got, str(caught.value)
