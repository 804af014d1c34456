# SPDX-License-Identifier: Apache-2.0
"""What a report says of the gate, and how it reads when it is printed."""

from __future__ import annotations

from typing import Any

import pytest

from bespoke.rules.report import Evaluation, MemoryReport, TrainReport

MEMORY = MemoryReport(
    idle_bytes=0, estimate_bytes=2_000_000, peak_bytes=1_900_000, limit_bytes=None, mapped_dirty_bytes=0, file_bytes=0
)


def report(**fields: Any) -> TrainReport:
    """A finished run of two steps that the gate refused, but for `fields`."""
    refused = {
        "method": "mesp", "run": 3, "steps": 2, "total_steps": 2, "tokens": 60, "losses": (2.0, 1.5), "rejected_steps": 0,
        "validation_loss_before": 2.0, "validation_loss": 2.1, "general_loss_before": None, "general_loss": None,
        "judged_on": "validation", "accepted": False, "stopped_because": "finished", "memory": MEMORY,
        "step_peak_bytes": (1_900_000, 1_900_000), "bytes_written": 0, "seconds": 0.5, "runtime": "core",
    }  # fmt: skip
    return TrainReport(**{**refused, **fields})


def said(of: TrainReport, row: str) -> str:
    (value,) = [line[len(row) :].strip() for line in str(of).splitlines() if line.startswith(row + " ")]
    return value


UNJUDGED = {"validation_loss_before": None, "validation_loss": None, "judged_on": None, "accepted": None}


@pytest.mark.parametrize(
    ("fields", "judged", "words"),
    [
        ({"accepted": True, "validation_loss": 1.2}, True, "yes"),
        ({}, True, "no, the adapter before it answers"),
        ({"stopped_because": "diverged"}, True, "no, the adapter before it answers"),
        ({"stopped_because": "steps_done", **UNJUDGED}, False, "not judged yet"),
        ({"stopped_because": "stop_requested", **UNJUDGED}, False, "not judged yet"),
        ({"stopped_because": "deadline", **UNJUDGED}, False, "not judged yet"),
        ({"stopped_because": "deadline", **UNJUDGED, "validation_loss_before": 2.0}, False, "not judged yet"),  # within the gate
        ({"stopped_because": "example_forgotten", **UNJUDGED}, False, "not judged: an example was forgotten"),
    ],
)
def test_what_was_not_judged_is_not_called_refused(fields: dict[str, Any], judged: bool, words: str) -> None:
    made = report(**fields)
    assert made.judged is judged
    assert said(made, "accepted").startswith(words)


def test_a_report_is_a_table_of_about_ten_lines() -> None:
    lines = str(report(step_seconds=(0.2, 0.3), seconds_by_stage={"forward": 1.0, "update": 3.0})).splitlines()
    assert 8 <= len(lines) <= 12
    starts = {len(line) - len(line[17:].lstrip()) for line in lines}
    assert starts == {17}  # all values begin in one column
    assert "forward 25%, update 75%" in lines[-4]


def test_an_evaluation_is_a_table_too() -> None:
    text = str(Evaluation(loss=1.5, perplexity=4.48, accuracy=0.25, tokens=80, examples=3, runtime="core"))
    assert [line.split()[0] for line in text.splitlines()] == ["loss", "perplexity", "accuracy", "looked", "runtime"]
    assert "80 tokens of 3 examples" in text
