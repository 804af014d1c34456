# SPDX-License-Identifier: Apache-2.0
"""Examples longer than the bundle's longest sequence: the answer stays whole where it can, and nobody has to guess what was cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import PersonalModel
from tests.support import reading
from tests.support.bundles import stories_bundle
from tests.unit.cli.commands import bespoke

__all__ = ["stories_bundle"]

LONGEST = 32  # positions of a row of that bundle, which holds one token more
LONG = "Once upon a time there was a little cat who liked to sit in the sun and look at the birds. " * 3


@pytest.fixture
def model(stories_bundle: Path, tmp_path: Path) -> Iterator[PersonalModel]:
    with PersonalModel.open(stories_bundle, tmp_path / "state") as opened:
        yield opened


@pytest.fixture(scope="module")
def oracle(stories: Path) -> Any:
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(stories / "tokenizer.json"))


def only_row(state: Path) -> tuple[list[int], list[int]]:
    ((tokens, mask),) = reading.select(state, "SELECT tokens, mask FROM example_rows")
    return np.frombuffer(bytes.fromhex(tokens), "<i4").tolist(), list(bytes.fromhex(mask))


def test_of_a_long_prompt_the_end_stays_and_the_answer_is_whole(
    model: PersonalModel, oracle: Any, tmp_path: Path
) -> None:
    added = model.examples.add({"prompt": LONG + "Question:", "completion": " yes"})
    tokens, mask = only_row(tmp_path / "state")
    prompt, whole = oracle.encode(LONG + "Question:").ids, oracle.encode(LONG + "Question: yes").ids
    answer = [*whole[len(prompt) :], 2]  # and </s>
    assert whole[: len(prompt)] == prompt
    assert tokens == [1, *prompt, *answer][:1] + [*prompt, *answer][-LONGEST:]
    assert [token for token, trained in zip(tokens, mask, strict=True) if trained] == answer
    assert added.truncated_tokens == len(prompt) + len(answer) - (LONGEST + 1)
    assert added.truncated_trained_tokens == 0


def test_an_answer_that_is_too_long_itself_loses_its_end_and_says_so(
    model: PersonalModel, oracle: Any, tmp_path: Path
) -> None:
    added = model.examples.add({"prompt": "Tell:", "completion": " " + LONG})
    prompt, whole = oracle.encode("Tell:").ids, [*oracle.encode("Tell: " + LONG).ids, 2]
    tokens, mask = only_row(tmp_path / "state")
    assert tokens == whole[: LONGEST + 1]  # the prompt, and the beginning of the answer
    assert mask == [0] * len(prompt) + [1] * (LONGEST + 1 - len(prompt))
    assert added.truncated_tokens == added.truncated_trained_tokens == len(whole) - (LONGEST + 1)


def test_what_fits_and_texts_of_any_length_are_not_cut(model: PersonalModel) -> None:
    for example in ({"text": LONG * 5}, {"prompt": "Is it?", "completion": " yes"}):
        added = model.examples.add(example)
        assert (added.truncated_tokens, added.truncated_trained_tokens) == (0, 0)


@pytest.mark.slow
def test_the_command_line_says_what_was_cut(stories_bundle: Path, stories: Path, tmp_path: Path) -> None:
    rows = [
        {"prompt": LONG, "completion": " yes"},
        {"prompt": "a", "completion": " no"},
        {"prompt": "b", "completion": LONG},
    ]
    (tmp_path / "some.json").write_text(json.dumps(rows))
    with PersonalModel.open(stories_bundle, tmp_path / "other") as model:
        added = [model.examples.add(row) for row in rows]
    cut, trained = sum(one.truncated_tokens for one in added), sum(one.truncated_trained_tokens for one in added)
    warning = f"cut: 2 examples are longer than the longest sequence; {cut} tokens left out, {trained} of them to be trained on"
    command = (
        "train",
        stories_bundle,
        "--state",
        tmp_path / "state",
        "--examples",
        tmp_path / "some.json",
        "--run-steps",
        1,
    )
    assert warning in bespoke(*command).ok().err
    first = (tmp_path / "first.json", {**rows[0]})
    first[0].write_text(json.dumps([first[1]] * 2))
    context = bespoke(*command[:4], "--examples", first[0], "--run-steps", 1).ok().err
    assert "tokens left out, none of them to be trained on" in context
    settings = ("--optimizers", "mesp", "--targets", "torch", "--sequence-lengths", LONGEST, "--rank", 2)
    built = bespoke(
        "build", tmp_path / "out.bundle", "--model", stories, "--data", tmp_path / "some.json", *settings
    ).ok()
    assert warning in built.out
