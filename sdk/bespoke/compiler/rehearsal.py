# SPDX-License-Identifier: Apache-2.0
"""Rehearsal: the base model's own answers to everyday prompts, as rows that runs train on and rows that the gate reads.

A model that trains on a user's few messages forgets how to answer anything else, unless it rehearses its own answers meanwhile. So
the build asks the base model the SDK's prompts, as a device would ask them. Whole kinds of prompts are held out: by these the gate
sees whether an adapter changes the answers. A model without a chat template continues openings of texts instead.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from bespoke.compiler.general import MOST_UNKNOWN
from bespoke.compiler.greedy import Question, greedy_answers
from bespoke.compiler.text import TextRules
from bespoke.data.messages import Message
from bespoke.data.prompts import Prompt, read_prompts
from bespoke.data.rows import TokenRow, TokenRows
from bespoke.data.text import Tokenizer
from bespoke.data.turn_tokens import TurnEncoder, TurnTokens
from bespoke.data.turns import Turns
from bespoke.errors import DataError
from bespoke.model.card import card_languages
from bespoke.model.spec import ModelSpec

__all__ = ["Rehearsal", "RehearsalReport", "rehearse"]

MOST_TOKENS = 96  # of an answer
SHORT = MOST_TOKENS // 2  # tokens of an answer: with less room it hardly shows how answers go on
LEAST_ROOM = 16  # tokens of an answer that the longest sequence must leave room for
# The end of a sentence or of a line. A full stop behind the number of a list's entry ends nothing, nor does a colon.
_SENTENCE_END = re.compile(
    r"""^\s*\d+\.(?!\S) | (?P<end> [.!?…]["'”’»)\]*]*(?!\S) | [。！？।] | (?<=[^\s:,;-])(?=\n) )""",
    re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True)
class RehearsalReport:
    """Counts of the answers that a bundle rehearses.

    answers:   those that runs train on
    held_out:  those by which the gate judges
    tokens:    of all these answers
    ended:     how many of them end by themselves; the others were cut at the end of a sentence
    no_room:   how many were cut because the longest sequence has room for fewer than SHORT tokens of them
    left_out:  prompts without an answer that can be used
    seconds:   the time that the answers took
    """

    answers: int
    held_out: int
    tokens: int
    ended: int
    no_room: int
    left_out: int
    seconds: float

    @property
    def mean_tokens(self) -> float:
        """The mean length of an answer."""
        return self.tokens / (self.answers + self.held_out)

    def __str__(self) -> str:
        return (
            f"{self.answers} answers of the base model to train on and {self.held_out} for the gate, {self.tokens} tokens, "
            f"{self.mean_tokens:.0f} in the mean, in {self.seconds:.0f} s"
        )


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Rows of answers to train on, rows of answers to prompts of held-out kinds, and the report."""

    train: TokenRows
    behaviour: TokenRows
    report: RehearsalReport


class Asking(Protocol):
    """How a model is asked."""

    def prompt(self, text: str) -> list[int]:
        """The tokens that the answer follows."""

    def row(self, text: str, answer: str, ended: bool) -> TokenRow:
        """The prompt with its answer, which alone is trained. An answer that `ended` has the tokens that end it."""


def rehearse(
    folder: Path,
    text: TextRules,
    model: ModelSpec,
    weights: Mapping[str, Path],
    length: int,
    context: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    hollow: bool = False,
) -> Rehearsal | None:
    """The answers of the base model whose int4 weights are in the files `weights`. None if the model knows too few of the prompts.

    folder: the model's, whose card names the languages
    length: the longest sequence: a row has at most one token more
    hollow: rows of zeros of the largest size, for an estimate
    """
    began = time.monotonic()
    if text.tokenizer is None:
        return None
    asking: Asking = TextAsking(text.tokenizer) if text.turns is None else ChatAsking(text.tokenizer, text.turns)
    prompts = read_prompts("openings" if text.turns is None else "everyday", card_languages(folder))
    asked = list(_asked(prompts, asking, min(length + 1, context)))
    if not _knows([question.tokens for _, question in asked], text):
        return None

    if hollow:
        size = [len(question.tokens) + question.most for _, question in asked]
        rows = [TokenRow(np.zeros(n, np.int32), np.zeros(n, np.uint8)) for n in size]
        pairs = [(prompt, row) for (prompt, _), row in zip(asked, rows, strict=True)]
        ended = no_room = 0
    else:
        stops = frozenset(text.record.stop_ids)
        answers = greedy_answers(model, weights, [question for _, question in asked], stops, progress)
        pairs, ended, no_room = [], 0, 0
        for (prompt, question), tokens in zip(asked, answers, strict=True):
            has_ended = bool(tokens) and tokens[-1] in stops
            row = _row(asking, text.tokenizer, prompt.text, tokens, has_ended)
            if row is not None and len(row.tokens) <= length + 1:
                pairs.append((prompt, row))
                ended += has_ended
                no_room += not has_ended and question.most < SHORT
    train, behaviour = ([row for prompt, row in pairs if prompt.held_out is held_out] for held_out in (False, True))
    if not train or not behaviour:
        return None
    report = RehearsalReport(
        answers=len(train),
        held_out=len(behaviour),
        tokens=sum(int(row.mask.sum()) for row in (*train, *behaviour)),
        ended=ended,
        no_room=no_room,
        left_out=len(prompts) - len(pairs),
        seconds=time.monotonic() - began,
    )
    return Rehearsal(TokenRows.from_rows(train), TokenRows.from_rows(behaviour), report)


def _asked(prompts: Sequence[Prompt], asking: Asking, room: int) -> Iterator[tuple[Prompt, Question]]:
    """The prompts that the tokenizer and the template take and that leave room for an answer."""
    for prompt in prompts:
        try:
            tokens = asking.prompt(prompt.text)
        except DataError:
            continue
        if len(tokens) and len(tokens) + LEAST_ROOM <= room:
            yield prompt, Question(tokens, min(MOST_TOKENS, room - len(tokens)))


def _knows(prompts: Sequence[Sequence[int]], text: TextRules) -> bool:
    """Whether the model knows most of the prompts' tokens."""
    tokens = np.array([token for prompt in prompts for token in prompt], np.int64)
    assert text.tokenizer is not None
    if not len(tokens) or tokens.max() >= text.record.vocab_size:
        return False
    return bool(np.isin(tokens, text.tokenizer.unknown_ids).mean() <= MOST_UNKNOWN)


def _row(asking: Asking, tokenizer: Tokenizer, prompt: str, tokens: Sequence[int], ended: bool) -> TokenRow | None:
    """The row of an answer. None if nothing of it can be used."""
    words = tokens[:-1] if ended else tokens
    if tokenizer.control_ids.intersection(words):
        return None  # a picture, a tool, another turn: in a row it would be a text that looks like one
    answer = tokenizer.decode(words)
    if not ended:
        answer = whole_sentences(answer)
        if isinstance(asking, TextAsking):  # a base model goes round in circles; a chat model ends most of its answers
            answer = before_repetition(answer)
    if not answer.strip():
        return None
    try:
        return asking.row(prompt, answer, ended)
    except DataError:  # the answer holds words that a template keeps for itself
        return None


def whole_sentences(text: str) -> str:
    """The text up to the end of its last whole sentence or line, "" if none is whole."""
    ends = _sentence_ends(text)
    return text[: ends[-1]] if ends else ""


def before_repetition(text: str) -> str:
    """The text up to the first sentence or line that stands in it before."""
    seen: set[str] = set()
    for begin, end in pairwise([0, *_sentence_ends(text)]):
        sentence = text[begin:end].strip()
        if sentence in seen:
            return text[:begin]
        seen.add(sentence)
    return text


def _sentence_ends(text: str) -> list[int]:
    """Where sentences and lines end."""
    return [match.end() for match in _SENTENCE_END.finditer(text) if match["end"] is not None]


class ChatAsking:
    """A question in the chat: one message of the user, with what the template puts before it."""

    def __init__(self, tokenizer: Tokenizer, turns: Turns) -> None:
        self._turns = turns
        self._encoder = TurnEncoder(tokenizer, turns)

    def prompt(self, text: str) -> list[int]:
        return self._tokens([Message("user", text)], generate=True).tokens

    def row(self, text: str, answer: str, ended: bool) -> TokenRow:
        encoded = self._tokens([Message("user", text), Message("assistant", answer)], generate=False)
        pieces = [encoded.pieces[number] for number in encoded.piece_of]
        mask = np.array([piece.role == "assistant" for piece in pieces], np.uint8)
        mask[0] = 0
        end = len(mask)
        if not ended:
            content = [piece.is_content and piece.role == "assistant" for piece in pieces]
            end = int(np.flatnonzero(content)[-1]) + 1
        return TokenRow(np.array(encoded.tokens[:end], np.int32), mask[:end])

    def _tokens(self, messages: Sequence[Message], generate: bool) -> TurnTokens:
        return self._encoder.encode(self._turns.pieces(messages, generate, "a prompt"), "a prompt")


class TextAsking:
    """An opening that a model without a chat template continues."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def prompt(self, text: str) -> list[int]:
        bos = self._tokenizer.bos_id
        return ([] if bos is None else [bos]) + self._tokenizer.encode(text)

    def row(self, text: str, answer: str, ended: bool) -> TokenRow:
        first = self.prompt(text)
        continuation = self._tokenizer.encode(answer, previous=first[-1])
        if ended and self._tokenizer.eos_id is not None:
            continuation.append(self._tokenizer.eos_id)
        mask = np.array([0] * len(first) + [1] * len(continuation), np.uint8)
        return TokenRow(np.array(first + continuation, np.int32), mask)
