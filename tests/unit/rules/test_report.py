# SPDX-License-Identifier: Apache-2.0
"""What a report says of the gate, and how it reads when it is printed."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from bespoke.rules.report import AnswerPair, BehaviourReport, Evaluation, JudgedStep, MemoryReport, TrainReport
from bespoke.rules.steps_csv import steps_csv

MEMORY = MemoryReport(
    idle_bytes=0, estimate_bytes=2_000_000, peak_bytes=1_900_000, limit_bytes=None, mapped_dirty_bytes=0, file_bytes=0
)


def report(**fields: Any) -> TrainReport:
    """A finished run of two steps that the gate refused, but for `fields`."""
    refused = {
        "method": "mesp",
        "run": 3,
        "steps": 2,
        "total_steps": 2,
        "tokens": 60,
        "losses": (2.0, 1.5),
        "rejected_steps": 0,
        "validation_loss_before": 2.0,
        "validation_loss": 2.1,
        "general_loss_before": None,
        "general_loss": None,
        "judged_on": "validation",
        "accepted": False,
        "stopped_because": "finished",
        "memory": MEMORY,
        "step_peak_bytes": (1_900_000, 1_900_000),
        "bytes_written": 0,
        "seconds": 0.5,
        "runtime": "core",
        "gain": -0.1,
        "refused_because": "no_better",
    }
    return TrainReport(**{**refused, **fields})


def said(of: TrainReport, row: str) -> str:
    (value,) = [line[len(row) :].strip() for line in str(of).splitlines() if line.startswith(row + " ")]
    return value


WORSE = {"general_loss_before": 2.0, "general_loss": 2.2, "refused_because": "general_worse"}
UNJUDGED = {
    "validation_loss_before": None,
    "validation_loss": None,
    "gain": None,
    "judged_on": None,
    "accepted": None,
    "refused_because": None,
}
LUCK = {"validation_loss": 1.9, "gain": 0.1, "least_gain": 0.2, "refused_because": "luck"}
SMALL = {
    "validation_loss": 1.999,
    "gain": 0.001,
    "least_gain": 0.0001,
    "useful_gain": 0.004,
    "refused_because": "too_small",
}
GENERAL = {**UNJUDGED, "accepted": False, "general_loss_before": 2.0, "general_loss": 1.999, "useful_gain": 0.004}

WORSE_BEHAVIOUR = {"behaviour_loss_base": 0.974, "behaviour_loss": 1.821, "behaviour_tokens": 1800}
ANSWERED = {
    "behaviour_loss_base": 0.974,
    "behaviour_loss": 0.967,
    "behaviour_tokens": 1800,
    "checked_answers": 4,
    "answer_tokens": 9.25,
    "base_answer_tokens": 11.5,
    "first_tokens_kept": 0.75,
}


@pytest.mark.parametrize(
    ("fields", "judged", "words"),
    [
        ({"accepted": True, "validation_loss": 1.2, "refused_because": None}, True, "yes"),
        ({}, True, "no: the validation loss is not better; the adapter before it answers"),
        (LUCK, True, "no: the validation loss is better by 0.1000, and luck alone may make 0.2000"),
        (SMALL, True, "no: the validation loss is better by 0.001, and less than 0.004 is of no use"),
        (
            {**GENERAL, "refused_because": "too_small"},
            True,
            "no: the loss on the bundle's own texts is better by 0.001, and less than 0.004 is of no use",
        ),
        (WORSE, True, "no: the loss on the bundle's own texts is 10.0% worse"),
        ({**WORSE, "general_loss": 2.0}, True, "no: the loss on the bundle's own texts is not better"),
        ({**WORSE, "general_loss": None}, True, "no: the loss on the bundle's own texts is not better"),
        (
            {**WORSE_BEHAVIOUR, "refused_because": "behaviour_worse"},
            True,
            "no: answers to other questions became much worse (1.821 nats a token, the base's own 0.974); the adapter before it",
        ),
        (
            {**ANSWERED, "refused_because": "answers_endless"},
            True,
            "no: answers to other questions do not end any more",
        ),
        ({**ANSWERED, "refused_because": "answers_empty"}, True, "no: answers to other questions are empty"),
        (
            {**ANSWERED, "refused_because": "answers_copied"},
            True,
            "no: answers to other questions repeat what was learned",
        ),
        ({"refused_because": "withdrawn"}, True, "no: an example was forgotten meanwhile"),
        ({"refused_because": "nothing_to_judge_by"}, True, "no: there is no example and no text of the bundle's"),
        ({"refused_because": "diverged"}, True, "no: the loss was no number in three steps in a row"),
        ({"stopped_because": "steps_done", **UNJUDGED}, False, "not judged yet"),
        ({"stopped_because": "stop_requested", **UNJUDGED}, False, "not judged yet"),
        ({"stopped_because": "deadline", **UNJUDGED}, False, "not judged yet"),
        (
            {"stopped_because": "deadline", **UNJUDGED, "validation_loss_before": 2.0},
            False,
            "not judged yet",
        ),  # within the gate
        ({"stopped_because": "example_forgotten", **UNJUDGED}, False, "not judged: an example was forgotten"),
    ],
)
def test_what_was_not_judged_is_not_called_refused(fields: dict[str, Any], judged: bool, words: str) -> None:
    made = report(**fields)
    assert made.judged is judged
    assert said(made, "accepted").startswith(words)


KEPT = "answers to other questions: 0.967 nats a token, the base's own 0.974, on 1800 tokens"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "; 4 answers checked, 9 tokens long (the base's 12), 75% of their first tokens as the base's"),
        ({"answers_unchecked_because": "no_plan"}, "; answers were not checked: the bundle has no plan for answers"),
        (
            {"answers_unchecked_because": "no_room"},
            "; answers were not checked: the bundle's plans for answers do not fit the memory limit",
        ),
        (
            {"answers_unchecked_because": "few_answers"},
            "; answers were not checked: the base has too few short answers",
        ),
        ({"refused_because": "luck", "accepted": False}, ""),
    ],
)
def test_it_says_what_became_of_other_answers(fields: dict[str, Any], words: str) -> None:
    unchecked = {"checked_answers": 0, "answer_tokens": None, "base_answer_tokens": None, "first_tokens_kept": None}
    judged = {**LUCK, **ANSWERED, "accepted": True, "refused_because": None, **(unchecked if fields else {}), **fields}
    assert said(report(**judged), "behaviour") == KEPT + words


def test_behaviour_shows_both_answers_to_a_prompt() -> None:
    measured = Evaluation(loss=0.967, perplexity=2.6, accuracy=0.5, tokens=80, examples=3, base_loss=0.974)
    text = str(BehaviourReport(measured, (AnswerPair("How does rain form?", "Water\nrises.", ""),)))
    assert "0.9670 nats a token (the base model: 0.9740)" in text
    assert text.splitlines()[-3:] == ["question  How does rain form?", "base      Water rises.", "now       (nothing)"]


def test_it_says_better_by_how_much_on_how_many_and_at_which_step() -> None:
    judged = {"judged_examples": 3, "judged_tokens": 120, "judged_of_tokens": 120, "least_gain": 0.05}
    losses = tuple(JudgedStep(step, loss) for step, loss in ((1, 1.5), (2, 1.7)))
    made = report(
        accepted=True, validation_loss=1.2, gain=0.8, refused_because=None, judgements=losses, best_step=1, **judged
    )
    assert made.why_refused is None
    expected = "2.0000 -> 1.2000 (better by 0.8000, of which luck may be 0.0500), on 120 tokens of 3 examples"
    assert said(made, "validation loss") == expected
    assert said(made, "best step") == "1, of 2 judged"


def test_steps_are_a_table_for_other_programs() -> None:
    judged = (JudgedStep(10, 1.5), JudgedStep(12, 1.4))
    made = report(total_steps=12, step_seconds=(0.25, 0.5), judgements=judged)
    assert list(csv.DictReader(io.StringIO(steps_csv(made)))) == [
        {"step": "11", "loss": "2.0", "seconds": "0.25", "peak_bytes": "1900000", "judged_loss": ""},
        {"step": "12", "loss": "1.5", "seconds": "0.5", "peak_bytes": "1900000", "judged_loss": "1.4"},
    ]


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
