# SPDX-License-Identifier: Apache-2.0
"""A real model on tasks: what it says is what `score` finds likeliest, and what `generate` says."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.errors import GenerationError
from bespoke.tasks import read_task
from tests.support.bundles import stories_bundle

__all__ = ["stories_bundle"]

LABELS = ("age_limit", "change_pin", "exchange_rate")


@pytest.fixture(scope="module")
def model(stories_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PersonalModel]:
    with PersonalModel.open(stories_bundle, tmp_path_factory.mktemp("tasks") / "state") as opened:
        yield opened


@pytest.fixture(scope="module")
def questions(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short questions of three labels, two of each, out of banking77."""
    path = tmp_path_factory.mktemp("questions") / "questions.csv"
    with (data_folder / "classification" / "banking77" / "test.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["category"] in LABELS and len(row["text"]) < 40]
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, ["text", "category"])
        writer.writeheader()
        for label in LABELS:
            writer.writerows([row for row in rows if row["category"] == label][:2])
    return path


@pytest.mark.slow
def test_the_label_that_is_said_is_the_likeliest_by_score(model: PersonalModel, questions: Path) -> None:
    """By the sum over its tokens and what ends it."""
    task = read_task("labels", questions, fields={"label": "category"})
    report = model.evaluate(task)
    assert (report.rows, report.options, report.chance, report.majority) == (6, 3, 1 / 3, 1 / 3)
    said = {row.number: row.answer for row in report.wrong}
    for row in task.rows:
        example = task.examples(chat=False)[row.number - 2]
        scores = model.score(example["prompt"], [f" {label}" for label in LABELS])
        likeliest = max(zip(LABELS, scores, strict=True), key=lambda pair: pair[1].log_probability)[0]
        assert said.get(row.number, row.right[0]) == likeliest
    assert report.accuracy == pytest.approx(1 - len(said) / 6)


def test_answers_are_generated_to_the_end_of_their_line(model: PersonalModel, tmp_path: Path) -> None:
    (tmp_path / "qa.csv").write_text(
        "prompt,answers\nOnce upon a,time\nOnce upon a time there was a little girl named,Lily\n"
    )
    task = read_task("answers", tmp_path / "qa.csv")
    report = model.evaluate(task)
    said = ["".join(model.generate(row.prompt, max_tokens=50, stop_texts=["\n"])).strip() for row in task.rows]
    assert [row.answer for row in report.wrong] == said
    assert report.exact_match == 0  # it tells a story
    assert report.f1 is not None
    assert report.f1 > 0  # in which both words stand


def test_the_row_whose_prompt_is_too_long_is_named(model: PersonalModel, tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f"text,label\nshort,a\n{'long ' * 100},b\n")
    with pytest.raises(GenerationError, match=r"long.csv, row 3: "):
        model.evaluate(read_task("labels", path))
