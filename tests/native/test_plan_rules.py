# SPDX-License-Identifier: Apache-2.0
"""The core takes the kinds of value that are listed by hand in tests/unit/plan/test_kinds.py and refuses what could harm, in the
words of the Python reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bespoke.errors import PlanError
from tests.native.format_lab import BUILDS, CoreReader, build_of, refused
from tests.unit.plan.kinds import REFUSED, is_allowed, kinds, sample, small, taken_of


@pytest.fixture(scope="module", params=BUILDS)
def reader(request: pytest.FixtureRequest) -> Iterator[CoreReader]:
    with CoreReader(build_of(request) / "tests" / "format_lab") as lab:
        yield lab


def test_of_all_kinds_of_value_these_are_taken_and_no_others(reader: CoreReader) -> None:
    draft, document = small()

    def read(doctored: dict[str, Any]) -> object:
        return reader.plan(json.dumps(doctored).encode(), draft.graphs)

    assert taken_of(read, document) == {kind for kind in kinds() if is_allowed(kind)}


@pytest.mark.parametrize("what", REFUSED)
def test_what_could_harm_is_refused_in_the_same_words(reader: CoreReader, what: str) -> None:
    draft, document = sample()
    REFUSED[what][0](document)
    with pytest.raises(PlanError) as theirs:
        draft.read(document)
    ours = refused(reader, "plan", json.dumps(document).encode(), draft.graphs)
    assert type(ours) is PlanError
    if what != "a number beyond 64 bits":  # which the core's records have no room for
        assert (ours.subject, ours.got, ours.expected) == (
            theirs.value.subject,
            theirs.value.got,
            theirs.value.expected,
        )
