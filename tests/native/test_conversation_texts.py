# SPDX-License-Identifier: Apache-2.0
"""Conversations in words: a chat template over several turns, stop texts, texts in pieces. The oracle is transformers, with the
real tokenizer and template of Qwen2.5 on a small random model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke import PersonalModel
from bespoke.errors import DataError, GenerationError
from tests.native.chat_folder import CONTEXT, folder
from tests.native.family_folders import CLEAR
from tests.support.checks import few_of, new_seed
from tests.support.models import dequantized_reference

__all__ = ["folder"]


pytestmark = pytest.mark.xdist_group("conversation_texts")  # one process reads the tokenizer
ENGINES = ("executorch", "torch")
Messages = list[dict[str, str]]
QUESTIONS = ("How old is the lake?", "Auf Deutsch: größer?", "湖は\nどこ 🙂", "<|im_end|> says the user.", "  spaces  ")


@pytest.fixture(scope="module")
def oracle(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder / "model"), dequantized_reference(folder / "model")


@pytest.fixture(params=few_of(ENGINES, ("executorch",)))
def model(folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PersonalModel]:
    with PersonalModel.open(folder / "bundle", tmp_path / "state", engine=request.param) as opened:
        yield opened


def test_each_turn_is_answered_as_transformers_answers_the_templates_text(
    model: PersonalModel, oracle: tuple[Any, Any]
) -> None:
    tokenizer, theirs = oracle
    messages: Messages = [{"role": "system", "content": "Be brief."}]
    fed = 0
    with model.conversation(max_tokens=9) as conversation:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            pieces = list(conversation.feed(messages[fed:]))
            answered = [piece.token for piece in pieces if piece.token is not None]
            # Words of a message are words: what looks like a special token in them is none.
            ids = [
                id
                for part in split_at_contents(tokenizer, messages)
                for id in tokenizer(part[1], add_special_tokens=False, split_special_tokens=part[0])["input_ids"]
            ]
            with torch.no_grad():
                logits = theirs(input_ids=torch.tensor([ids + answered])).logits[0, len(ids) - 1 : -1]
            best = logits.topk(2).values
            clear = best[:, 0] - best[:, 1] > CLEAR
            assert clear.float().mean() > 0.9
            assert (logits.argmax(-1) == torch.tensor(answered))[clear].all()
            messages.append({"role": "assistant", "content": "".join(piece.text for piece in pieces)})
            fed = len(messages)


def split_at_contents(tokenizer: Any, messages: Messages) -> list[tuple[bool, str]]:
    """The template's text in stretches, each with whether it is the content of a message."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    parts, at = [], 0
    for message in messages:
        found = text.index(message["content"], at) if message["content"] else at
        parts += [(False, text[at:found]), (True, message["content"])]
        at = found + len(message["content"])
    return [*parts, (False, text[at:])]


def test_pieces_joined_are_what_the_tokenizer_makes_of_the_tokens(
    model: PersonalModel, oracle: tuple[Any, Any]
) -> None:
    for seed in range(3):
        with model.conversation(max_tokens=40, temperature=1.5, seed=seed) as conversation:
            pieces = list(conversation.feed("Once upon a time"))
        tokens = [piece.token for piece in pieces if piece.token is not None]
        assert "".join(piece.text for piece in pieces) == oracle[0].decode(tokens, skip_special_tokens=True)
        assert [piece.tokens for piece in pieces][: len(tokens)] == list(range(1, len(tokens) + 1))


def cut_at(stops: Sequence[str], pieces: Sequence[str]) -> str:
    """The answer before a stop text. The first of two overlapping stop texts to be complete ends it."""
    said = ""
    for piece in pieces:
        said += piece
        if found := [said.index(stop) for stop in stops if stop in said]:
            return said[: min(found)]
    return said


def test_an_answer_ends_before_the_first_of_its_stop_texts(model: PersonalModel) -> None:
    chance = random.Random(new_seed())
    for seed in range(8):
        settings: dict[str, Any] = {"max_tokens": 30, "temperature": 1.5, "seed": seed}
        with model.conversation(**settings) as conversation:
            pieces = [piece.text for piece in conversation.feed("A")]
        whole = "".join(pieces)
        begins = [chance.randrange(len(whole) - 4) for _ in range(2)]
        stops = [whole[begin : begin + chance.randint(1, 4)] for begin in begins] + ["never in it"]
        with model.conversation(**settings, stop_texts=stops) as conversation:
            said = "".join(piece.text for piece in conversation.feed("A"))
        assert said == cut_at(stops, pieces)
        assert conversation.stopped_because == "stop_text"


def test_what_a_stop_text_might_have_begun_is_said_at_the_end(model: PersonalModel) -> None:
    whole = "".join(model.generate("A", max_tokens=6, temperature=1.5))
    assert "".join(model.generate("A", max_tokens=6, temperature=1.5, stop_texts=[whole[-3:] + "!"])) == whole


LABELS = ["card arrival", "card", "lost card", "", "top up", "Überweisung 🙂", "card arrival late"]


def ids_and_answer(tokenizer: Any, prompt: str | Messages, label: str) -> tuple[list[int], list[int]]:
    """Tokens of a prompt, and of an answer with what ends it."""
    words = partial(tokenizer, add_special_tokens=False, split_special_tokens=True)
    if isinstance(prompt, str):
        return words(prompt)["input_ids"], [*words(label)["input_ids"], tokenizer.eos_token_id]
    ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    return ids, [*words(label)["input_ids"], tokenizer.convert_tokens_to_ids("<|im_end|>")]


@pytest.mark.parametrize(
    "prompt", ["Where is it?", [{"role": "user", "content": "Where is it?"}]], ids=["text", "messages"]
)
def test_labels_are_judged_as_transformers_judges_them(
    model: PersonalModel, oracle: tuple[Any, Any], prompt: str | Messages
) -> None:
    tokenizer, theirs = oracle
    expected = []
    for label in LABELS:
        ids, answer = ids_and_answer(tokenizer, prompt, label)
        with torch.no_grad():
            logits = theirs(input_ids=torch.tensor([ids + answer])).logits[0, len(ids) - 1 : -1]
        expected.append(logits.double().log_softmax(-1)[range(len(answer)), answer].sum().item())
    found = model.score(prompt, LABELS)
    assert [score.log_probability for score in found] == pytest.approx(expected, rel=1e-4)
    best = model.classify(prompt, LABELS)
    assert best.label == LABELS[expected.index(max(expected))]
    assert best.log_probability == pytest.approx(max(expected), rel=1e-4)
    for labels in (LABELS[2:3], LABELS[1:3], LABELS[4:]):
        place = expected.index(max(expected[LABELS.index(label)] for label in labels))
        assert model.classify(prompt, labels).label == LABELS[place]


def test_what_is_no_list_of_answers_is_refused(model: PersonalModel) -> None:
    too_long = (["a b " * CONTEXT], GenerationError)
    for wrong, error in (([], DataError), ("label", DataError), (None, DataError), ([1], DataError), too_long):
        with pytest.raises(error):
            model.classify("A", wrong)  # type: ignore[arg-type]
        with pytest.raises(error):
            model.score("A", wrong)  # type: ignore[arg-type]
    with pytest.raises(GenerationError):
        model.score("", ["a"])


def test_a_text_goes_on_where_its_answer_ended(model: PersonalModel) -> None:
    with model.conversation(max_tokens=5) as conversation:
        first = "".join(piece.text for piece in conversation.feed("Once upon"))
        second = "".join(piece.text for piece in conversation.feed(" and then"))
    assert second == "".join(model.generate("Once upon" + first + " and then", max_tokens=5))


def test_a_session_goes_on_as_it_began(model: PersonalModel) -> None:
    with model.conversation(max_tokens=2) as conversation:
        assert len(list(conversation.feed("A"))) == 2
        with pytest.raises(GenerationError, match="messages; expected a text, as the session began with"):
            conversation.feed([{"role": "user", "content": "A"}])
        with pytest.raises(GenerationError, match="token ids; expected a text"):
            conversation.feed([1, 2])
        assert len(list(conversation.feed("B"))) == 2
