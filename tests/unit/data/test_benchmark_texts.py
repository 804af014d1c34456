# SPDX-License-Identifier: Apache-2.0
"""The texts that the benchmarks of harmless learning ask with: unseen by any training, and without the answers in them."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from sample_apps.desktop.tries import tries

from tests.conftest import REPOSITORY

HARMLESS = REPOSITORY / "tests" / "benchmarks" / "harmless"


def lines(name: str) -> list[str]:
    return (HARMLESS / name).read_text(encoding="utf-8").splitlines()


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(name)]


def rehearsed(folder: str) -> set[str]:
    texts = [file.read_text(encoding="utf-8") for file in (files("bespoke.data") / folder).iterdir()]
    return {line for text in texts for line in text.splitlines()}


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def contains(text: str, answer: str) -> bool:
    """Whether the words of the answer stand in the text. A longer answer also counts within a word, as "game" in "games"."""
    return f" {plain(answer)} " in f" {plain(text)} " or (len(answer) > 3 and plain(answer) in plain(text))


def test_the_prompts_of_a_benchmark_differ_from_each_other_and_from_those_of_the_sdk() -> None:
    tried = [prompt for _, prompt in tries()]
    styled = [row["prompt"] for row in rows("preferences.jsonl")]
    prompts = [*lines("prompts.txt"), *tried, *dict.fromkeys(styled)]
    assert (len(lines("prompts.txt")), len(tried)) == (80, 10)
    assert [prompt for prompt, times in Counter(map(plain, prompts)).items() if times > 1] == []
    assert {plain(prompt) for prompt in prompts} & {plain(line) for line in rehearsed("everyday")} == set()


def test_the_openings_of_a_benchmark_are_none_of_the_sdk() -> None:
    openings = lines("openings.txt")
    assert len(openings) == len(set(openings)) == 60
    assert set(openings) & rehearsed("openings") == set()
    assert [opening for opening in openings if not opening[-1].isalpha()] == []


@pytest.mark.parametrize(("persona", "questions"), [("student", 50), ("customer", 30), ("healthcare", 25)])
def test_every_question_has_three_other_wordings_without_its_answer(
    persona: str, questions: int, data_folder: Path
) -> None:
    asked = [json.loads(line) for line in (data_folder / "personas" / f"{persona}.qa.jsonl").read_text().splitlines()]
    worded = {row["question"]: row["wordings"] for row in rows("wordings.jsonl") if row["persona"] == persona}
    assert list(worded) == [row["question"] for row in asked]
    assert len(asked) == questions
    for row in asked:
        question, wordings = row["question"], worded[row["question"]]
        assert len({plain(text) for text in [question, *wordings]}) == 4, question
        for wording in wordings:
            given = [
                answer for answer in row["answers"] if contains(wording, answer) and not contains(question, answer)
            ]
            assert given == [], wording


def test_no_wording_asks_for_two_facts() -> None:
    wordings = [plain(wording) for row in rows("wordings.jsonl") for wording in row["wordings"]]
    assert len(set(wordings)) == len(wordings) == 3 * 105


def test_each_style_has_sixty_pairs_and_the_unseen_prompts_are_in_none() -> None:
    train = [row for row in rows("preferences.jsonl") if row["split"] == "train"]
    unseen = [row for row in rows("preferences.jsonl") if row["split"] == "unseen"]
    assert Counter(row["style"] for row in train) == {"short": 60, "formal": 60}
    assert len({row["prompt"] for row in unseen} - {row["prompt"] for row in train}) == len(unseen) == 40
    for row in train:
        chosen, rejected = len(row["chosen"].split()), len(row["rejected"].split())
        assert 20 <= rejected <= 60, row["rejected"]
        assert chosen <= 10 if row["style"] == "short" else 15 <= chosen <= 60, row["chosen"]
