# SPDX-License-Identifier: Apache-2.0
"""Tokenizes a conversation as the model's tokenizer does the template's whole text.

The text between two control tokens is tokenized as one text, contents together with the glue around them. So a `\\n` of a header
and a `\\n` of the content behind it are one token if they are one in the whole text. Tokens always end in two kinds of places. One
is the beginning of an answer, since a prompt ends there and the model's own tokens follow. The other is within a mark of turns that
a message contains (marks.py). No control token is recognised in a content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from bespoke.data.marks import Marks
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Piece, Turns
from bespoke.errors import DataError

__all__ = ["TurnEncoder", "TurnTokens"]


@dataclass
class TurnTokens:
    """The tokens of a conversation. `piece_of` has, for each token, the number of the piece that it belongs to.

    A token that spans several pieces belongs to a content if it reaches into one, else to the first piece.
    """

    pieces: Sequence[Piece]
    tokens: list[int] = field(default_factory=list)
    piece_of: list[int] = field(default_factory=list)


class TurnEncoder:
    """Tokenizes the pieces of conversations of one template."""

    def __init__(self, tokenizer: Tokenizer, turns: Turns) -> None:
        self._tokenizer = tokenizer
        self._marks = Marks(tokenizer, turns)

    def encode(self, pieces: Sequence[Piece], subject: str) -> TurnTokens:
        """The tokens of `pieces`. DataError, naming `subject`, for a content that cannot be tokenized."""
        out = TurnTokens(pieces)
        run: list[tuple[int, str]] = []  # (number of a piece, its text) that are tokenized as one text
        for number, piece in enumerate(pieces):
            if piece.begins_answer:
                run = self._end(run, out, subject)

            if piece.is_content:
                first, *others = self._marks.parts(piece.text, subject)
                run.append((number, first))
                for other in others:
                    run = [*self._end(run, out, subject), (number, other)]
                continue

            for part in self._tokenizer.parts(piece.text):
                if isinstance(part, str):
                    run.append((number, part))
                else:
                    run = self._end(run, out, subject)
                    out.tokens.append(part)
                    out.piece_of.append(number)
        self._end(run, out, subject)
        return out

    def _end(self, run: list[tuple[int, str]], out: TurnTokens, subject: str) -> list[tuple[int, str]]:
        """Appends the tokens of a run to `out`. Returns the next run, which is empty."""
        text = "".join(part for _, part in run)
        if not text:
            return []
        try:
            tokens, spans = self._tokenizer.encode_spans(text, previous=out.tokens[-1] if out.tokens else None)
        except DataError as error:
            raise DataError(subject, got=error.got, expected=error.expected, next_step=error.next_step) from None

        owners = [number for number, part in run for _ in part]  # the piece of each character
        sizes = self._tokenizer.known_sizes(tokens)
        if sizes is not None:
            # The package does not count lost characters, so its spans behind them are too far left. These spans are of known parts.
            owners = [n for n, part in run for _ in self._tokenizer.known_part(self._tokenizer.canonical(part))[0]]
            spans = _spans(self._without_added_spaces(tokens, sizes, len(owners)))
            owners = owners or [run[0][0]]

        for begin, end in spans:
            reached = owners[begin : max(end, begin + 1)] or owners[-1:]
            content = [number for number in reached if out.pieces[number].is_content]
            out.piece_of.append((content or reached)[0])
        out.tokens += tokens
        return []

    def _without_added_spaces(self, tokens: list[int], sizes: list[int], whole: int) -> list[int]:
        """`sizes` without the spaces that the tokenizer put before stretches, so that they add up to `whole`."""
        added, begins = sum(sizes) - whole, True
        for place, token in enumerate(tokens):
            if begins and added > 0 and sizes[place] > 0:
                sizes[place] -= 1
                added -= 1
                begins = False
            begins = begins or self._tokenizer.is_added(token)
        return sizes


def _spans(sizes: list[int]) -> list[tuple[int, int]]:
    """The (first, end) of adjacent stretches of these sizes."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends], ends, strict=False))
