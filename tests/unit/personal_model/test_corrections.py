# SPDX-License-Identifier: Apache-2.0
"""A user corrects answers: what is kept of it, and that a run learns which answer is preferred, as the reference does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.errors import ConfigError, DataError
from tests.support import reading
from tests.support.bundles import made_once
from tests.support.oracle import trained_alike
from tests.unit.data import templates

LONGEST = 64
QUESTION = {"role": "user", "content": "Where is the key?"}
ANSWER = {"role": "assistant", "content": "In the sea, I think."}
NEXT = {"role": "user", "content": "And the cat?"}
SIMPO: dict[str, Any] = {"preferences": "simpo", "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def chat_bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K with a chat template, for a method that learns from pairs."""

    def make(folder: Path) -> None:
        shutil.copytree(stories, folder / "model")
        (folder / "model" / "chat_template.jinja").write_text(templates.ZEPHYR)
        training = Training(sequence_lengths=(LONGEST,), batch_size=4, steps=40)
        optimizers = {"mesp": SIMPO}
        Personalizer(
            folder / "model", optimizers, "torch", context=256, lora=Lora(rank=2), training=training, data=None
        ).build(folder / "bundle")

    return made_once(tmp_path_factory, "stories-simpo", make) / "bundle"


@pytest.fixture
def model(chat_bundle: Path, tmp_path: Path) -> Iterator[PersonalModel]:
    with PersonalModel.open(chat_bundle, tmp_path / "state") as opened:
        yield opened


def kept(state: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for (text,) in reading.select(state, "SELECT json FROM examples ORDER BY key")]


def test_a_corrected_answer_of_a_conversation_is_kept_with_what_was_asked(model: PersonalModel, tmp_path: Path) -> None:
    with model.conversation(max_tokens=6) as conversation:
        first = "".join(piece.text for piece in conversation.feed([QUESTION]))
        model.correct(conversation, "Under the blue pot.")
        second = "".join(piece.text for piece in conversation.feed([NEXT]))
        model.correct(conversation, "She sleeps.")
    before = [QUESTION, {"role": "assistant", "content": first}, NEXT]
    assert kept(tmp_path / "state") == [
        {"prompt": [QUESTION], "chosen": "Under the blue pot.", "rejected": first},
        {"prompt": before, "chosen": "She sleeps.", "rejected": second},
    ]


def test_messages_that_end_with_the_answer_are_corrected_alike(model: PersonalModel, tmp_path: Path) -> None:
    added = model.correct([QUESTION, ANSWER], "Under the blue pot.")
    assert (added.created, added.truncated_tokens) == (True, 0)
    assert kept(tmp_path / "state") == [
        {"prompt": [QUESTION], "chosen": "Under the blue pot.", "rejected": ANSWER["content"]}
    ]


def test_an_answer_that_continues_a_text_is_corrected_as_text(model: PersonalModel, tmp_path: Path) -> None:
    with model.conversation(max_tokens=4) as conversation:
        answer = "".join(piece.text for piece in conversation.feed("Once upon"))
        model.correct(conversation, " a winter")
    assert kept(tmp_path / "state") == [
        {"prompt": "Once upon", "chosen": " a winter", "rejected": answer, "as": "text"}
    ]


@pytest.mark.parametrize(
    ("answer", "better", "complaint"),
    [
        ([QUESTION], "a", "messages that do not end with an answer"),
        ([ANSWER], "a", "messages that do not end with an answer"),
        ("Where?", "a", "got text; expected a conversation, or messages"),
        ([QUESTION, ANSWER], ANSWER["content"], "got the answer that was chosen"),
        ([QUESTION, ANSWER], "", "nothing to train on"),
        ([QUESTION, ANSWER], None, "got nothing; expected text"),
        ([1, 2, 3], "a", "no messages"),
    ],
)
def test_what_is_no_correction_is_refused(
    model: PersonalModel, answer: Any, better: Any, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=complaint):
        model.correct(answer, better)
    assert kept(tmp_path / "state") == []


def test_a_conversation_without_an_answer_cannot_be_corrected(model: PersonalModel) -> None:
    with model.conversation() as conversation:
        with pytest.raises(DataError, match="no words of an answer"):
            model.correct(conversation, "Under the blue pot.")
        conversation.feed([QUESTION])
        with pytest.raises(DataError, match="no words of an answer"):
            model.correct(conversation, "Under the blue pot.")


def add_some(model: PersonalModel) -> None:
    """Pairs and examples that are alone."""
    for number in range(7):
        question = {"role": "user", "content": f"{number}. Where is the key?"}
        model.correct([question, {**ANSWER, "content": f"In the sea, {number} miles away."}], f"Under pot {number}.")
        model.examples.add({"messages": [question, {"role": "assistant", "content": f"Pot {number} hides it."}]})


def test_a_run_learns_which_answer_is_preferred_as_the_reference_does(
    model: PersonalModel, chat_bundle: Path, tmp_path: Path
) -> None:
    add_some(model)
    prompt = [{"role": "user", "content": "3. Where is the key?"}]
    answers = ["Under pot 3.", "In the sea, 3 miles away."]

    def margin() -> float:
        chosen, rejected = model.score(prompt, answers)
        return chosen.log_probability / chosen.tokens - rejected.log_probability / rejected.tokens

    before = margin()
    report = model.train()
    expected = trained_alike(chat_bundle, tmp_path / "state")
    np.testing.assert_allclose(report.losses, expected.losses, rtol=1e-4)
    assert report.tokens == expected.tokens
    assert report.accepted
    assert margin() > before + 0.1


def test_a_pair_without_room_in_a_batch_is_refused_at_build(stories: Path, tmp_path: Path) -> None:
    training = Training(sequence_lengths=(LONGEST,), batch_size=1)
    with pytest.raises(ConfigError, match=r"batch_size.*2 or more with preferences = 'simpo'"):
        Personalizer(stories, {"mesp": SIMPO}, "torch", training=training, data=None).build(tmp_path / "bundle")
