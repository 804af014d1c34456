# SPDX-License-Identifier: Apache-2.0
"""The invented user's notes: validation shares no run of eight words or tokens with training, by the SDK's own split."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from sample_apps.desktop.notes import PROMPTS, WRITTEN, example, held_out, note_id, notes, shared_runs
from sample_apps.desktop.pretrain import BEGIN, END
from tokenizers import Tokenizer

from tests.unit.personal_model.tiny import split_of

COUNT = 200


@pytest.fixture(scope="module")
def encode(everyday_tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    return lambda text: everyday_tokenizer.encode(f"{BEGIN}{text}{END}", add_special_tokens=False).ids


@pytest.fixture(scope="module")
def diary(encode: Callable[[str], list[int]]) -> list[str]:
    return notes(encode, COUNT)


@pytest.fixture(scope="module")
def sides(diary: list[str]) -> tuple[list[str], list[str]]:
    """Training and validation notes, split as the state does it."""
    train: list[str] = []
    validation: list[str] = []
    for index, note in enumerate(diary):
        split = split_of(note_id(index), index + 1, len(validation))
        (validation if split == "validation" else train).append(note)
    return train, validation


def test_at_least_150_different_notes_the_same_each_time(diary: list[str], encode: Callable[[str], list[int]]) -> None:
    assert len(set(diary)) == COUNT >= 150
    assert notes(encode, COUNT) == diary
    assert sum(note in WRITTEN for note in diary) >= 40


def test_held_out_is_what_the_sdk_holds_out(diary: list[str], sides: tuple[list[str], list[str]]) -> None:
    assert [note for note, out in zip(diary, held_out(COUNT), strict=True) if out] == sides[1]
    assert len(sides[1]) >= COUNT / 10


def test_validation_shares_no_run_of_eight_words_or_tokens_with_training(
    sides: tuple[list[str], list[str]], everyday_tokenizer: Tokenizer
) -> None:
    """Counted on text, not by `shared_runs`: tokens joined into strings, words cut at anything that is no letter or digit."""
    train, validation = sides

    def windows(items: list[str]) -> set[str]:
        return {" ".join(items[start : start + 8]) for start in range(len(items) - 7)}

    def words(note: str) -> list[str]:
        return re.sub(r"[^a-z0-9]+", " ", note.lower()).split()

    def tokens(note: str) -> list[str]:
        ids = everyday_tokenizer.encode(f"{BEGIN}{note}{END}", add_special_tokens=False).ids
        return [str(id) for id in ids]

    for cut in (words, tokens):
        learned = set().union(*(windows(cut(note)) for note in train))
        assert learned
        assert not learned & set().union(*(windows(cut(note)) for note in validation))


def test_shared_runs_finds_a_run_of_eight_and_no_shorter_one() -> None:
    one, other = "a b c d e f g h i", "x b c d e f g h i"

    def apart(text: str) -> list[int]:
        return list(range(100, 109)) if text == one else list(range(200, 209))

    assert shared_runs([one], [other], apart) == {tuple("bcdefghi")}
    assert not shared_runs([one], [other.replace("i", "j")], apart)


def test_shorter_runs_recur_so_that_there_is_something_to_learn(sides: tuple[list[str], list[str]]) -> None:
    train, validation = (set(re.findall(r"\w+", " ".join(side).lower())) for side in sides)
    assert len(validation & train) > 0.6 * len(validation)


def test_a_note_is_split_where_two_words_are_typed(diary: list[str], everyday_tokenizer: Tokenizer) -> None:
    for note in diary:
        parts = example(note)
        assert parts["prompt"] + parts["completion"] == note
        prompt, completion, whole = (
            everyday_tokenizer.encode(text, add_special_tokens=False).ids
            for text in (parts["prompt"], parts["completion"], note)
        )
        assert prompt + completion == whole
    for opening in PROMPTS:
        assert sum(note.startswith(f"{opening} ") for note in diary) >= 10
