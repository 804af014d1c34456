# SPDX-License-Identifier: Apache-2.0
"""What other languages are held against is what this one does: a rule that changes must change its vectors too."""

from __future__ import annotations

from tests.conformance import make_batches


def test_the_vectors_of_batches_and_schedules_are_those_of_the_cursor() -> None:
    assert make_batches.PATH.read_text(encoding="ascii") == make_batches.text()
