# SPDX-License-Identifier: Apache-2.0
"""What each of the papers' tasks asks and what it counts as right, written out by hand from the papers' tables of templates."""

from __future__ import annotations

from typing import Any

import pytest
from tests.benchmarks.templates import TEMPLATES

A, B = "A dog barks.", "A cat sleeps."
ROWS: dict[str, tuple[dict[str, Any], str, tuple[str, ...], str]] = {  # columns, what is asked, options, what is right
    "sst2": ({"text": "a fine film .", "label": 1}, "a fine film . It was", ("terrible", "great"), "great"),
    "rte": (
        {"premise": A, "hypothesis": B, "label": 1},
        f'{A} Does this mean that "{B}" is true? Yes or No?',
        ("Yes", "No"),
        "No",
    ),
    "mrpc": (
        {"sentence1": A, "sentence2": B, "label": 0},
        f"Do the following two sentences mean the same thing? Yes or No? Sentence 1: {A} Sentence 2: {B}",
        ("No", "Yes"),
        "No",
    ),
    "qqp": (
        {"question1": A, "question2": B, "label": 1},
        f"Are these two questions asking the same thing? Yes or No? Question 1: {A} Question 2: {B}",
        ("No", "Yes"),
        "Yes",
    ),
    "qnli": (
        {"question": A, "sentence": B, "label": 0},
        f"Does this sentence answer the question? Yes or No? Sentence 1: {A} Sentence 2: {B}",
        ("Yes", "No"),
        "Yes",
    ),
    "wnli": (
        {"sentence1": A, "sentence2": B, "label": 1},
        f"Given the first sentence, is the second sentence true? Yes or No? Sentence 1: {A} Sentence 2: {B}",
        ("No", "Yes"),
        "Yes",
    ),
    "boolq": ({"passage": A, "question": "does it bark", "label": 1}, f"{A} does it bark?", ("No", "Yes"), "Yes"),
    "wsc": (
        {"text": "Ann said she left.", "span1_text": "Ann", "span2_text": "she", "label": 1},
        'Ann said she left. In the previous sentence, does the pronoun "she" refer to Ann?',
        ("No", "Yes"),
        "Yes",
    ),
    "wic": (
        {"word": "bank", "sentence1": A, "sentence2": B, "label": 0},
        f'Does the word "bank" have the same meaning in these two sentences? {A} {B} Yes, No?',
        ("No", "Yes"),
        "No",
    ),
    "multirc": (
        {"paragraph": A, "question": "Who barks?", "answer": "the dog", "label": 1},
        f'{A} Question: Who barks? I found this answer "the dog". Is that correct? Yes or No?',
        ("No", "Yes"),
        "Yes",
    ),
    "copa": (
        {
            "premise": "It rained",
            "conjunction": "so",
            "choice1": "the road was wet.",
            "choice2": "the sun shone.",
            "label": 0,
        },
        "It rained so",
        ("the road was wet.", "the sun shone."),
        "the road was wet.",
    ),
    "winogrande": (
        {
            "context": "The cup fell off the table since",
            "option1": "the cup",
            "option2": "the table",
            "rest": "was slippery.",
            "label": 0,
        },
        "The cup fell off the table since",
        ("the cup was slippery.", "the table was slippery."),
        "the cup was slippery.",
    ),
    "arc": (
        {"question": "What is wet?", "op1": "fire", "op2": "sand", "op3": "rain", "op4": "wind", "label": 2},
        "Pick the most correct option to answer the following question: What is wet? Options: fire, sand, rain, wind Answer:",
        ("fire", "sand", "rain", "wind"),
        "rain",
    ),
    "squad": (
        {"title": "Dogs", "context": A, "question": "Who barks?", "answers": ["A dog"]},
        f"Title: Dogs Context: {A} Question: Who barks? Answer:",
        (),
        "A dog",
    ),
}


def test_there_are_the_fourteen_of_the_papers() -> None:
    assert len(TEMPLATES) == 14
    assert set(TEMPLATES) == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_asked_as_the_papers_ask_it(name: str) -> None:
    columns, prompt, options, right = ROWS[name]
    task = TEMPLATES[name].task([columns])
    assert (task.rows[0].prompt, task.rows[0].options, task.rows[0].right) == (prompt, options, (right,))
    assert task.kind == {"copa": "choice", "winogrande": "choice", "arc": "choice", "squad": "answers"}.get(
        name, "labels"
    )
    assert task.examples(chat=False) == [{"prompt": prompt, "completion": f" {right}"}]
