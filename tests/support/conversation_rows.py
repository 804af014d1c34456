# SPDX-License-Identifier: Apache-2.0
"""Rows of a conversation that is longer than the longest sequence (bindings/native/src/text/conversation_rows.h).

Each row is a conversation of its own: the system message, then neighbouring turns of the whole. Every trained message is
trained in one row, and is context where another row has it again. A row takes on, in this order,

1. the first message that no row has trained yet, behind the nearest turn before it with which a conversation may begin: an
   answer has its question. The turn before that one too, where what stands before the answer is at most half a row;
2. as many of the messages behind as find room;
3. as many of the turns before as find room.

Where not even 1 finds room, the row is fitted as a prompt and its completion (row_fitting.py).

How many find room is seen in the tokens of the row itself, since glue and the stripping of contents may differ at its two
ends. The tokens of the whole conversation say where to look, so that each row is tokenized a few times only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bespoke.data.messages import Message
from bespoke.data.turn_tokens import TurnTokens
from bespoke.data.turns import Turns
from tests.support.row_fitting import Row, fitted_range, kept_of, trained_end

__all__ = ["ConversationRows", "conversation_rows", "message_of_tokens"]

Encode = Callable[[Sequence[Message]], TurnTokens]


@dataclass
class ConversationRows:
    """`truncated` counts tokens of messages that are in no row, or only as context where they were to be trained on;
    `truncated_trained` those that were to be trained on."""

    rows: list[Row]
    truncated: int
    truncated_trained: int


def conversation_rows(
    messages: Sequence[Message],
    trains: Sequence[bool],
    encode: Encode,
    turns: Turns,
    bos: int | None,
    whole_answers: bool,
    room: int,
) -> ConversationRows:
    """Rows of at most `room` tokens; none where no content is trained. `trains`: for each message whether it is trained on."""
    maker = _Maker(messages, trains, encode, turns, bos, whole_answers, room)
    return maker.result() if maker.trains_words else ConversationRows([], 0, 0)


def message_of_tokens(found: TurnTokens) -> list[int]:
    """For each token the message whose words or ending it is of; -1 for the template's other text."""
    message_of_piece = []
    message = -1
    for piece in found.pieces:
        message += piece.is_content
        is_before_content = piece.begins_answer and not piece.is_content  # the model's own words too
        message_of_piece.append(-1 if piece.role is None else message + is_before_content)
    return [message_of_piece[number] for number in found.piece_of]


@dataclass
class _Unit:
    """Trained messages that are in a row together, from `first` to `last`: a row may end before the message `end`."""

    first: int
    last: int
    end: int


@dataclass
class _Tokens:
    """Tokens of the system message and the messages from `begin` on. `message_of`: numbers in the whole conversation."""

    begin: int
    unit: int  # the last one of which it trains
    row: Row
    message_of: list[int]
    trained_end: int


class _Maker:
    def __init__(
        self,
        messages: Sequence[Message],
        trains: Sequence[bool],
        encode: Encode,
        turns: Turns,
        bos: int | None,
        whole_answers: bool,
        room: int,
    ) -> None:
        self._messages, self._trains, self._encode, self._turns = messages, trains, encode, turns
        self._whole_answers, self._room = whole_answers, room
        self._first = int(messages[0].role == "system")
        self._extra = 0  # tokens of a row beyond those that its messages have in the whole
        self._rows: list[Row] = []
        self._is_whole = [False] * len(messages)  # in some row, and trained there where it is to be trained
        self._heads, self._tails = [0] * len(messages), [0] * len(messages)  # how much of one that was cut
        found = encode(messages)
        self._with_bos = found.tokens[:1] == [bos]
        message_of = message_of_tokens(found)
        self._sizes = [0] * len(messages)  # tokens of each message
        words = [False] * len(messages)  # whether its content has any
        ends = [0] * len(messages)  # behind the last token of each
        for place, (message, number) in enumerate(zip(message_of, found.piece_of, strict=True)):
            if message >= 0:
                self._sizes[message] += 1
                words[message] |= found.pieces[number].is_content
                ends[message] = place + 1
        self._whole = _Tokens(self._first, 0, (found.tokens, self._mask(message_of, 0)), message_of, 0)
        self._whole.trained_end = trained_end(self._whole.row[1])
        for message in range(1, len(messages)):
            ends[message] = ends[message] or ends[message - 1]
        self.trains_words = any(word and trained for word, trained in zip(words, trains, strict=True))
        trained = [i for i in range(self._first, len(messages)) if trains[i] and words[i]]
        self._units = self._grouped(trained)
        self._unit_ends = [ends[unit.last] for unit in self._units]
        self._starts = [self._first, *(i for i in range(self._first + 1, len(messages)) if self._may_begin(i))]
        self._start_begins = [ends[start - 1] if start else 0 for start in self._starts]

    def result(self) -> ConversationRows:
        if self._whole.trained_end <= self._room or not self._units:
            self._keep(self._whole)
        else:
            unit = done = 0
            while unit < len(self._units):
                tokens = self._tokens_from(unit, done)
                self._keep(tokens)
                unit, done = tokens.unit + 1, self._units[tokens.unit].last + 1
        missing = [
            0 if whole else max(0, size - head - tail)
            for whole, size, head, tail in zip(self._is_whole, self._sizes, self._heads, self._tails, strict=True)
        ]
        trained = sum(count for count, trains in zip(missing, self._trains, strict=True) if trains)
        return ConversationRows(self._rows, sum(missing), trained)

    # What a row may be.

    def _grouped(self, trained: Sequence[int]) -> list[_Unit]:
        units: list[_Unit] = []
        first: int | None = None
        for place, message in enumerate(trained):
            first = message if first is None else first
            if place == len(trained) - 1:
                end: int | None = len(self._messages)
            else:
                end = next((end for end in range(message + 1, trained[place + 1] + 1) if self._may_end(end)), None)
            if end is not None:
                units.append(_Unit(first, message, end))
                first = None
        return units

    def _may_end(self, end: int) -> bool:
        role = self._messages[end - 1].role
        return self._turns.knows(self._role_before(end - 1), role, True) and self._turns.knows(role, "end", False)

    def _may_begin(self, message: int) -> bool:
        """Never with an answer that is to be trained on."""
        role = self._messages[message].role
        if role != "user" and (role != "assistant" or self._trains[message]):
            return False
        place = "system" if self._first else "start"
        return all(self._turns.knows(place, role, last) for last in {True, message == len(self._messages) - 1})

    def _role_before(self, message: int) -> str:
        return self._messages[message - 1].role if message else "start"

    # One row.

    def _tokens_from(self, unit: int, done: int) -> _Tokens:
        """Tokens of the row that trains `unit` first. Messages before `done` are context."""
        starts, first = self._starts, self._units[unit].first
        before = bisect_left(starts, first)  # how many starts are before it
        start = max(before - 1, 0)
        tokens = self._tokens(start, unit, done)
        if not self._fits(tokens) and start < before < len(starts) and starts[before] == first:
            start, tokens = before, self._tokens(before, unit, done)
        if not self._fits(tokens):
            return tokens
        if start > 0:
            wider = self._tokens(start - 1, unit, done)
            if self._fits(wider) and wider.message_of.index(first) <= self._room // 2:
                start, tokens = start - 1, wider

        def measure(of: _Tokens) -> None:
            self._extra = of.trained_end - (
                self._unit_ends[of.unit] - self._start_begins[bisect_left(starts, of.begin)]
            )

        measure(tokens)
        good, bad = unit, len(self._units)
        while bad - good > 1:
            guess = bisect_right(self._unit_ends, self._room - self._extra + self._start_begins[start]) - 1
            more = self._tokens(start, min(max(guess, good + 1), bad - 1), done)
            measure(more)
            if self._fits(more):
                good, tokens = more.unit, more
            else:
                bad = more.unit
        measure(tokens)
        nearest, too_far = start, -1
        while nearest - too_far > 1:
            guess = bisect_left(self._start_begins, self._unit_ends[good] + self._extra - self._room)
            at = min(max(guess, too_far + 1), nearest - 1)
            more = self._tokens(at, good, done)
            measure(more)
            if self._fits(more):
                nearest, tokens = at, more
            else:
                too_far = at
        return tokens

    def _tokens(self, start: int, unit: int, done: int) -> _Tokens:
        begin, first = self._starts[start], self._first
        found = self._encode([*self._messages[:first], *self._messages[begin : self._units[unit].end]])
        message_of = [number if number < first else number - first + begin for number in message_of_tokens(found)]
        row = (found.tokens, self._mask(message_of, done))
        return _Tokens(begin, unit, row, message_of, trained_end(row[1]))

    def _mask(self, message_of: Sequence[int], done: int) -> list[int]:
        mask = [int(message >= done and self._trains[message]) for message in message_of]
        mask[:1] = [0] * len(mask[:1])
        return mask

    def _fits(self, tokens: _Tokens) -> bool:
        return tokens.trained_end <= self._room

    def _keep(self, tokens: _Tokens) -> None:
        begin, end = fitted_range(tokens.row[1], self._with_bos, self._whole_answers, self._room)
        self._rows.append(kept_of(tokens.row, begin, end, self._with_bos))
        places: dict[int, list[int]] = {}
        for place, message in enumerate(tokens.message_of):
            places.setdefault(message, [place, place])[1] = place + 1
        # Nothing stands before the first token of a row: it is read, and not trained on.
        trained_begin = begin + (begin > 0 and not self._with_bos)
        for message, (first, behind) in places.items():
            if message < 0 or (self._trains[message] and not tokens.row[1][behind - 1]):
                continue
            kept_from, kept_to = max(first, trained_begin if self._trains[message] else begin), min(behind, end)
            kept = max(0, kept_to - kept_from)
            if kept == behind - first:
                self._is_whole[message] = True
            elif kept_from == first:
                self._heads[message] = max(self._heads[message], kept)
            else:
                self._tails[message] = max(self._tails[message], kept)
