# SPDX-License-Identifier: Apache-2.0
"""Conversation: messages go in, and answers come out token by token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from bespoke import arguments
from bespoke.core.answers import Generation, OpenConversation
from bespoke.data.example_json import why_not_json
from bespoke.errors import DataError, GenerationError, StateError, kind_of, shown
from bespoke.remedies import setting, verb
from bespoke.rules.records import AnswerEnd, AnswerPiece
from bespoke.rules.sampling import check_sampling

__all__ = ["Conversation", "answers_json", "check_prompt", "generation_of", "prompt_json"]


class Conversation(Iterator[AnswerPiece]):
    """A conversation with a personal model. `PersonalModel.conversation` opens it; it is a context manager and an iterator.

        with model.conversation(max_tokens=200) as conversation:
            for piece in conversation.feed([{"role": "user", "content": "..."}]):
                print(piece.text, end="", flush=True)

    One adapter gives an answer: the newest when the answer begins. The answer becomes a part of the conversation, so `feed` takes
    new messages only. Feeding more ends an answer that is not complete.

    Attributes:
        stopped_because: Why the last answer ended. None: it has not ended.
    """

    def __init__(self, opened: OpenConversation, check_open: Callable[[], None]) -> None:
        self._opened = opened
        self._check_open = check_open
        self._answers = self._closed = False
        self._fed: list[Any] | str | None = None  # all that was fed, and the answers before the last one
        self._answer = ""
        self.stopped_because: AnswerEnd | None = None

    def feed(self, prompt: str | Sequence[Any]) -> Self:
        """Adds to the conversation. Computes nothing, and returns the conversation: iterate over it for the answer.

        Args:
            prompt: New messages, the next part of a text, or the next token ids.

        If a later turn does not fit in the bundle's context, its answer has no tokens and `stopped_because` is "context_full". Open
        another conversation then, with the last messages that you want to keep. Raises GenerationError for a first prompt that is
        longer than the context, and DataError for a prompt that cannot be used. Nothing is added then.
        """
        self._check_open()
        if self._closed:
            raise StateError(
                "the conversation",
                got="a conversation that was closed",
                expected="an open one",
                next_step="Open another one",
            )
        self._opened.feed(prompt_json(prompt))
        self._remember(prompt)
        self._answers, self.stopped_because = True, None
        return self

    def _remember(self, prompt: str | Sequence[Any]) -> None:
        """Keeps what was fed, for `last_answer`: the core has it in its own process."""
        fed, answer = self._fed, self._answer
        self._answer = ""
        if isinstance(prompt, str):
            self._fed = f"{fed or ''}{answer}{prompt}"
            return
        before = fed if isinstance(fed, list) else []
        answered = [{"role": "assistant", "content": answer}] if answer and isinstance(before[-1], Mapping) else []
        self._fed = [*before, *answered, *prompt]

    @property
    def last_answer(self) -> tuple[list[Any] | str, str]:
        """What the last answer answers, in the form in which it was fed, and the answer as far as it went.

        Raises DataError if there is no answer yet.
        """
        if self._fed is None or not self._answer:
            raise DataError(
                "the conversation",
                got="no words of an answer",
                expected="an answer of one token at least",
                next_step="Iterate over it after " + verb("feed"),
            )
        return self._fed, self._answer

    def __next__(self) -> AnswerPiece:
        """Returns one token, and the text that it completes. `stopped_because` of the last piece says why the answer ended.

        If it raises, no token was taken: ask again for the same one. Raises Busy while the model computes.
        """
        if not self._answers:
            raise StopIteration
        self._check_open()
        piece = self._opened.next()
        self._answer += piece.text
        if piece.stopped_because is not None:
            self._answers, self.stopped_because = False, piece.stopped_because
        return piece

    def close(self) -> None:
        """Frees the conversation's memory. Does nothing a second time."""
        if self._closed:
            return
        self._answers, self._closed = False, True
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def generation_of(
    *,
    max_tokens: int | None,
    temperature: float,
    top_p: float,
    top_k: int | None,
    seed: int,
    stop_texts: Sequence[str] = (),
    notes: bool = False,
) -> Generation:
    """Returns the settings of a conversation. Raises GenerationError for a value out of its range."""
    if max_tokens is not None:
        max_tokens = arguments.whole_number("max_tokens", max_tokens, 1, error=GenerationError)
    check_sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    listed = isinstance(stop_texts, Sequence) and not isinstance(stop_texts, str)
    if not listed or not all(isinstance(text, str) and text for text in stop_texts):
        raise GenerationError(
            setting("stop_texts"),
            got=shown(stop_texts),
            expected="a list of texts, none of them empty",
            next_step="Change " + setting("stop_texts"),
        )
    _json("stop_texts", list(stop_texts), "Use texts without halves of surrogate pairs")
    if not isinstance(notes, bool):
        raise GenerationError(
            setting("notes"), got=shown(notes), expected="True or False", next_step="Change " + setting("notes")
        )
    return Generation(max_tokens, temperature, top_p, top_k, seed, tuple(stop_texts), notes)


def check_prompt(prompt: Any) -> None:
    """Raises GenerationError for a value that is not a prompt."""
    listed = isinstance(prompt, Sequence | np.ndarray) and not isinstance(prompt, str | bytes)
    if not isinstance(prompt, str) and not (listed and len(prompt)):
        raise GenerationError(
            "prompt",
            got="an empty list" if listed else kind_of(prompt),
            expected="text, messages or token ids",
            next_step="Give one of them",
        )


def prompt_json(prompt: Any) -> str:
    """Returns a prompt in the JSON form that the core takes."""
    check_prompt(prompt)
    if not isinstance(prompt, str):
        prompt = [int(part) if isinstance(part, np.integer) else part for part in prompt]
    return _json("prompt", prompt, "Use text, messages or token ids")


def answers_json(what: str, answers: Any) -> str:
    """Returns answers to score, or labels, in the JSON form that the core takes. `what` names them in an error."""
    if not isinstance(answers, Sequence) or isinstance(answers, str | bytes):
        raise DataError(what, got=kind_of(answers), expected="a list of texts", next_step="Give one")
    return _json(what, list(answers), "Give texts")


def _json(subject: str, value: Any, next_step: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(subject, got=why_not_json(error), expected="what JSON can hold", next_step=next_step) from None
    return text
