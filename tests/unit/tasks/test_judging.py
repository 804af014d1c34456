# SPDX-License-Identifier: Apache-2.0
"""What is made of a model's answers. Here the answers are given; tests/unit/personal_model/test_tasks.py asks a real model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import ConfigError, GenerationError
from bespoke.rules.records import Classification
from bespoke.tasks import Task, TaskRow, judge, read_task


@dataclass
class Said:
    """Says one of `answers` after the other, and keeps what it was asked."""

    answers: list[str]
    has_turns: bool = False
    asked: list[tuple[Any, Any]] = field(default_factory=list)

    def classify(self, prompt: Any, labels: Sequence[str]) -> Classification:
        self.asked.append((prompt, tuple(labels)))
        return Classification(self.answers.pop(0), -1.0)

    def generate(self, prompt: Any, *, max_tokens: int, stop_texts: Sequence[str]) -> Iterator[str]:
        self.asked.append((prompt, tuple(stop_texts)))
        return iter(self.answers.pop(0))


LABELS = ("bill", "card", "loan")


def labels_task(*right: str) -> Task:
    rows = [TaskRow(number, f"text {number}\nLabel:", (label,), LABELS) for number, label in enumerate(right, 2)]
    return Task("labels", tuple(rows), "rows.csv")


def test_labels_have_accuracy_macro_f1_and_what_they_are_to_be_held_against() -> None:
    task = labels_task("bill", "bill", "card", "card", "card")
    report = judge(Said([" bill", " card", " card", " card", " loan"]), task)
    assert (report.task, report.rows, report.options) == ("labels", 5, 3)
    assert report.accuracy == pytest.approx(3 / 5)
    # bill: P 1, R 1/2, F1 2/3. card: P 2/3, R 2/3, F1 2/3. loan: said and never right, F1 0.
    assert report.macro_f1 == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert report.chance == pytest.approx(1 / 3)
    assert report.majority == pytest.approx(3 / 5)  # "card" to every row
    assert (report.exact_match, report.f1) == (None, None)
    assert [(row.number, row.right, row.answer) for row in report.wrong] == [
        (3, ("bill",), "card"),
        (6, ("card",), "loan"),
    ]


def test_the_report_is_a_table_for_people() -> None:
    report = judge(
        Said([" bill", " card", " card", " card", " loan"]), labels_task("bill", "bill", "card", "card", "card")
    )
    assert str(report).splitlines() == [
        "task         3 labels",
        "accuracy     60.0%",
        "macro F1     44.4%",
        "to compare   chance 33.3%, always the commonest answer 60.0%",
        "rows         5, of which 2 wrong",
    ]


def test_a_model_is_asked_as_it_was_trained() -> None:
    """The answer follows a plain prompt behind a space; with chat turns prompt and answer are messages."""
    task = labels_task("bill")
    plain, chat = Said([" bill"]), Said(["bill"], has_turns=True)
    assert judge(plain, task).accuracy == judge(chat, task).accuracy == 1
    example = task.examples(chat=False)[0]
    assert plain.asked == [(example["prompt"], (" bill", " card", " loan"))]
    assert example["completion"] in plain.asked[0][1]
    question, answer = task.examples(chat=True)[0]["messages"]
    assert chat.asked == [([question], LABELS)]
    assert answer["content"] in LABELS


def test_of_multiple_choice_chance_goes_by_the_options_of_each_row() -> None:
    rows = (TaskRow(1, "q", ("a",), ("a", "b")), TaskRow(2, "q", ("c",), ("a", "b", "c", "d")))
    report = judge(Said([" a", " b"]), Task("choice", rows))
    assert (report.accuracy, report.chance, report.macro_f1, report.options) == (0.5, (1 / 2 + 1 / 4) / 2, None, None)


def test_answers_have_exact_match_and_f1() -> None:
    rows = (
        TaskRow(1, "q", ("Advanced Algorithms",)),
        TaskRow(2, "q", ("One", "1")),
        TaskRow(3, "q", ("in Rome",)),
        TaskRow(4, "q", ("the one",)),
    )
    model = Said([" the advanced algorithms.", " 1", " Rome", ""])
    report = judge(model, Task("answers", rows))
    assert report.exact_match == 2 / 4
    assert report.f1 == pytest.approx((1 + 1 + 2 / 3 + 0) / 4)
    assert (report.accuracy, report.chance) == (None, None)
    assert report.majority == 2 / 4  # "one" is right in the second row and in the fourth
    assert [row.answer for row in report.wrong] == ["Rome", ""]
    assert model.asked[0] == ("q", ("\n",))


def test_calls_are_compared_as_calls() -> None:
    right = '{"name": "f", "arguments": {"a": "1", "b": "2"}}'
    rows = tuple(TaskRow(number, "q", (right,)) for number in range(1, 5))
    swapped = ' {"arguments": {"b": "2", "a": "1"}, "name": "f"}'
    model = Said([swapped, ' {"name": "f", "arguments": {}}', " f(a=1)", ' {"name": "g", "arguments": {}}'])
    report = judge(model, Task("calls", rows))
    assert (report.exact_match, report.accuracy, report.f1) == (1 / 4, 2 / 4, None)
    assert len(report.wrong) == 3


def test_what_is_no_call_is_never_the_right_function() -> None:
    report = judge(Said([" I cannot do that."]), Task("calls", (TaskRow(1, "q", ("f(1)",)),)))
    assert (report.exact_match, report.accuracy) == (0, 0)


def test_calls_that_differ_in_the_order_of_their_arguments_are_one_commonest_answer() -> None:
    calls = (
        '{"name": "f", "arguments": {"a": 1, "b": 2}}',
        '{"name": "f", "arguments": {"b": 2, "a": 1}}',
        '{"name": "g", "arguments": {}}',
    )
    rows = tuple(TaskRow(number, "q", (call,)) for number, call in enumerate(calls))
    assert judge(Said(["", "", ""]), Task("calls", rows)).majority == 2 / 3


def test_one_label_alone_is_nothing_to_choose_from(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\none,a\n")
    with pytest.raises(ConfigError, match="'a' alone; expected two or more"):
        judge(Said([]), read_task("labels", tmp_path / "rows.csv"))


def test_the_row_that_a_model_cannot_take_is_named() -> None:
    class Short(Said):
        def classify(self, prompt: Any, labels: Sequence[str]) -> Classification:
            raise GenerationError("prompt", got="600 tokens", expected="at most 512", next_step="Shorten it")

    with pytest.raises(GenerationError, match=r"^rows.csv, row 2: prompt: got 600 tokens"):
        judge(Short([]), labels_task("bill"))


def test_progress_is_told_row_by_row() -> None:
    done: list[int] = []
    judge(Said([" bill", " bill"]), labels_task("bill", "card"), done.append)
    assert done == [1, 2]
