# SPDX-License-Identifier: Apache-2.0
"""Conversations with notes: a question is answered as if the user had written the nearest notes above it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.errors import GenerationError
from tests.native.chat_folder import CONTEXT, folder
from tests.support.checks import few_of

__all__ = ["folder"]


pytestmark = pytest.mark.xdist_group("conversation_texts")  # one process reads the tokenizer
CLARA, DENTIST, BICYCLE = (
    "My sister Clara moved to Lisbon in May.",
    "The dentist said I should come back in six months.",
    "I sold my old Volvo and bought a red bicycle.",
)


@pytest.fixture(params=few_of(("executorch", "torch"), ("executorch",)))
def model(folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PersonalModel]:
    with PersonalModel.open(folder / "bundle", tmp_path / "state", engine=request.param) as opened:
        for note in (CLARA, DENTIST, BICYCLE):
            opened.examples.add({"text": note}, id=note[:10])
        yield opened


def noted(question: str, *notes: str) -> str:
    return "Notes:\n" + "".join(f"- {note}\n" for note in notes) + "\n" + question


def answers(model: PersonalModel, *turns: str, notes: bool, max_tokens: int = 6) -> list[list[int | None]]:
    """The tokens of the answer to each turn of one conversation."""
    with model.conversation(max_tokens=max_tokens, notes=notes) as conversation:
        return [[piece.token for piece in conversation.feed([{"role": "user", "content": turn}])] for turn in turns]


def test_a_question_is_answered_with_the_nearest_note_above_it(model: PersonalModel) -> None:
    question = "Where is Clara?"
    with_note = answers(model, question, notes=True)
    assert with_note == answers(model, noted(question, CLARA), notes=False)
    assert with_note != answers(model, question, notes=False)


def test_notes_stay_in_the_conversation_and_are_not_repeated(model: PersonalModel) -> None:
    turns = ("Where is Clara?", "What says the dentist, Clara?", "Is Clara back?")
    written = (noted(turns[0], CLARA), noted(turns[1], DENTIST), turns[2])
    assert answers(model, *turns, notes=True) == answers(model, *written, notes=False)


def test_a_question_that_no_note_has_a_word_of_is_asked_as_it_is(model: PersonalModel) -> None:
    question = "Explain photosynthesis"
    assert answers(model, question, notes=True) == answers(model, question, notes=False)


def test_a_forgotten_note_is_not_there_and_a_new_one_is(model: PersonalModel) -> None:
    question = "Where is Clara?"
    answers(model, question, notes=True)
    model.examples.forget(CLARA[:10])
    assert answers(model, question, notes=True) == answers(model, question, notes=False)
    model.examples.add({"text": "Clara is at home."})
    assert answers(model, question, notes=True) == answers(model, noted(question, "Clara is at home."), notes=False)


def test_notes_leave_room_for_the_answer(model: PersonalModel) -> None:
    """A note that does not fit is left out, and a shorter one takes its place."""
    long = "Clara " + "likes the long way home " * 16
    model.examples.add({"text": long})
    question = "Where is Clara? " + "word " * (CONTEXT - 80)
    for max_tokens, note in ((4, [CLARA]), (60, [])):
        written = noted(question, *note) if note else question
        assert answers(model, question, notes=True, max_tokens=max_tokens) == answers(
            model, written, notes=False, max_tokens=max_tokens
        )


def test_a_text_to_continue_gets_notes_too(model: PersonalModel) -> None:
    text = "Clara lives"
    with_note = list(model.generate(text, max_tokens=5, notes=True))
    assert with_note == list(model.generate(noted(text, CLARA), max_tokens=5))


def test_token_ids_have_no_words_to_look_for(model: PersonalModel) -> None:
    with (
        model.conversation(notes=True) as conversation,
        pytest.raises(GenerationError, match="notes are found by their words"),
    ):
        conversation.feed([1, 2, 3])
    with pytest.raises(GenerationError, match="expected True or False"):
        model.conversation(notes=1)  # type: ignore[arg-type]
