# SPDX-License-Identifier: Apache-2.0
"""The number of steps that a run has if its settings name none."""

from __future__ import annotations

import json

import pytest

from bespoke.config import Training
from bespoke.errors import ConfigError
from bespoke.rules.batches import BatchCursor, CursorState, Row
from bespoke.rules.run_length import EPOCHS, LEAST_STEPS, MOST_STEPS, run_length


def test_auto_is_the_default_and_is_kept_as_null() -> None:
    assert Training(steps="auto") == Training() == Training(steps=None)
    assert json.loads(Training().model_dump_json())["steps"] is None
    assert Training.model_validate_json(Training(steps="auto").model_dump_json()).steps is None
    with pytest.raises(ConfigError, match="'twice'"):
        Training(steps="twice")


def test_a_number_of_steps_wins() -> None:
    assert run_length(Training(steps=7), 1000, 1000) == 7


def test_a_run_reads_each_row_of_the_user_s_as_often_as_it_says() -> None:
    training = Training(general_share=0.3, batch_size=2, accumulation=2, seed=4)
    rows = [Row([1, 2], [0, 1]) for _ in range(1000)]
    cursor = BatchCursor(
        rows, rows, seed=4, batch_size=2, accumulation=2, sequence_lengths=[4], general_share=0.3, vocab_size=9
    )
    place = CursorState()
    steps = run_length(training, len(rows), len(rows))
    assert LEAST_STEPS < steps < MOST_STEPS
    for _ in range(steps):
        _, place = cursor.step(place)
    assert place.user_position / len(rows) == pytest.approx(EPOCHS, rel=0.03)


def test_few_rows_have_the_shortest_run_and_many_the_longest() -> None:
    assert [run_length(Training(), rows, 0) for rows in (0, 1, 50, 51)] == [LEAST_STEPS] * 3 + [51 * EPOCHS]
    assert run_length(Training(), 10**6, 0) == MOST_STEPS
    assert run_length(Training(general_share=1.0), 10**6, 5) == LEAST_STEPS
