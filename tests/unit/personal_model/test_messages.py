# SPDX-License-Identifier: Apache-2.0
"""Conversations as people have them, added to a model with a chat template: nothing of them is dropped without a word."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.data.text import Tokenizer
from bespoke.errors import DataError
from tests.support import reading
from tests.support.bundles import made_once
from tests.unit.cli.commands import bespoke
from tests.unit.data import templates

LONGEST = 128
QUESTION = {"role": "user", "content": "Where is the key?"}
ANSWER = {"role": "assistant", "content": "Under the blue pot.", "name": "Nell"}
CONVERSATION = [
    {"role": role, "content": words.format(number)}
    for number in range(100)
    for role, words in (("user", "{}. Where is the key?"), ("assistant", "Under pot {}."))
]
FILE = [
    {"messages": [QUESTION, ANSWER], "source": "a"},
    {"messages": [{**QUESTION, "name": "Tom"}, {**ANSWER, "thinking": "..."}]},
]


@pytest.fixture(scope="module")
def chat_folder(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model`, stories260K with a chat template, and `bundle`; read them, do not change them."""

    def make(folder: Path) -> None:
        shutil.copytree(stories, folder / "model")
        (folder / "model" / "chat_template.jinja").write_text(templates.ZEPHYR)
        settings: dict[str, Any] = {
            "lora": Lora(rank=2),
            "training": Training(sequence_lengths=(LONGEST,), batch_size=1, steps=2),
            "rehearsal": False,
        }
        Personalizer(folder / "model", "mesp", "torch", context=LONGEST, **settings).build(folder / "bundle")

    return made_once(tmp_path_factory, "stories-chat", make)


@pytest.fixture
def model(chat_folder: Path, tmp_path: Path) -> Iterator[PersonalModel]:
    with PersonalModel.open(chat_folder / "bundle", tmp_path / "state") as opened:
        yield opened


def trained_texts(chat_folder: Path, state: Path) -> list[str]:
    """What is trained on of each row that is kept."""
    tokenizer = Tokenizer.open(chat_folder / "model")
    texts = []
    for tokens, mask in reading.select(state, "SELECT tokens, mask FROM example_rows"):
        ids, bits = np.frombuffer(bytes.fromhex(tokens), "<i4"), np.frombuffer(bytes.fromhex(mask), "u1")
        assert len(ids) <= LONGEST + 1
        texts.append(tokenizer.decode(ids[bits == 1], skip_special=False))
    return texts


def test_every_answer_of_a_long_conversation_is_kept_to_be_trained_on_once(
    model: PersonalModel, chat_folder: Path, tmp_path: Path
) -> None:
    added = model.examples.add({"messages": CONVERSATION})
    assert (added.truncated_tokens, added.truncated_trained_tokens) == (0, 0)
    texts = trained_texts(chat_folder, tmp_path / "state")
    assert model.examples.list()[0].rows == len(texts) > 1
    answers = [piece.strip() for text in texts for piece in text.split("</s>")]
    assert [answer for answer in answers if answer] == [f"Under pot {number}." for number in range(100)]


def test_an_answer_that_fits_in_no_row_is_cut_and_the_others_are_whole(
    model: PersonalModel, chat_folder: Path, tmp_path: Path
) -> None:
    long = {"role": "assistant", "content": "Once upon a time there was a little cat. " * 20}
    added = model.examples.add({"messages": [*CONVERSATION[:4], QUESTION, long, *CONVERSATION[4:8]]})
    assert 0 < added.truncated_trained_tokens <= added.truncated_tokens
    answers = [piece.strip() for text in trained_texts(chat_folder, tmp_path / "state") for piece in text.split("</s>")]
    short = [f"Under pot {number}." for number in range(4)]
    assert [answer for answer in answers if answer in short] == short
    assert sum(answer.startswith("Once upon a time there was a little cat. Once") for answer in answers) == 1


def test_a_message_of_weight_0_is_not_trained_on(model: PersonalModel, chat_folder: Path, tmp_path: Path) -> None:
    model.examples.add({"messages": [QUESTION, {**ANSWER, "content": "I hate you.", "weight": 0}, QUESTION, ANSWER]})
    (text,) = trained_texts(chat_folder, tmp_path / "state")
    assert text.strip() == "Under the blue pot.</s>"
    with pytest.raises(DataError, match="weight 0 for every message"):
        model.examples.add({"messages": [QUESTION, {**ANSWER, "weight": 0}]})
    with pytest.raises(DataError, match=r"messages\[1\]\.weight: got 0\.5; expected 0 or 1"):
        model.examples.add({"messages": [QUESTION, {**ANSWER, "weight": 0.5}]})


def test_unused_keys_are_said(model: PersonalModel) -> None:
    assert model.examples.add(FILE[0]).unused_keys == {"messages.name": 1, "source": 1}
    assert model.examples.add({"text": "Once upon a time"}).unused_keys == {}
    many: dict[str, Any] = {f"key {number}": number for number in range(10_000)}
    added = model.examples.add({"text": "There was a cat", **many})
    assert sum(added.unused_keys.values()) == 10_000
    assert len(added.unused_keys) == 33


def test_parts_of_text_and_the_role_developer_are_taken_when_it_answers(model: PersonalModel) -> None:
    def answer(messages: list[dict[str, Any]]) -> str:
        return "".join(model.generate(messages, max_tokens=4, temperature=0))

    plain = [{"role": "system", "content": "Be brief."}, QUESTION]
    parts = [{"type": "text", "text": "Where "}, {"type": "text", "text": "is the key?"}]
    assert answer(plain) == answer([{**plain[0], "role": "developer"}, {"role": "user", "content": parts}])
    with pytest.raises(DataError, match="a part of type 'image_url'; expected parts of type text"):
        answer([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}])
    with pytest.raises(DataError, match="Call this role user"):
        answer([{"role": "human", "content": "Where is the key?"}])


@pytest.mark.slow
def test_the_command_line_says_which_keys_of_messages_it_did_not_use(chat_folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "some.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in FILE))
    command = ("train", chat_folder / "bundle", "--state", tmp_path / "state", "--examples", rows, "--run-steps", 1)
    said = bespoke(*command).ok().err
    assert "unknown key 'messages.name' in 2 rows" in said
    assert "unknown key 'messages.thinking' in 1 rows" in said
    data = ("--model", chat_folder / "model", "--data", rows, "--format", "json")
    settings = ("--optimizers", "mesp", "--targets", "torch", "--sequence-lengths", LONGEST, "--rank", 2)
    built = bespoke("build", tmp_path / "out.bundle", *data, *settings).ok()
    assert built.json["data"]["unknown_keys"] == {"messages.name": 2, "messages.thinking": 1, "source": 1}
