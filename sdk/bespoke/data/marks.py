# SPDX-License-Identifier: Apache-2.0
"""Marks: the words by which a chat template writes its turns without special tokens, such as `[INST]` and `### User:`.

A special token inside a message is tokenized as plain characters, so a message cannot forge a turn with it. Marks have no such
protection: in a message they would become the same tokens as in the template. So a mark inside a message is *spelled*: each of its
characters is tokenized alone, and the message never has the tokens of a turn. A message without a mark keeps its tokens.

Marks are read off the glue between messages:

- Glue without a control token gives its first and its last line with words, without the spaces around them. A line of letters
  alone (`assistant`) also occurs in ordinary messages, so such a mark includes the spaces around it.
- Glue with a control token cannot be forged, since no content becomes that token. But a model may read the words next to the token
  as a turn (`<|user|>` behind `</s>`). So these lines are marks too, unless they are letters alone (`<|im_start|>user`).
- At the start of a text only the last line counts, and only without a control token, because a long opening may stand before it.

bindings/native/src/text/marks.cpp does the same on a device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from bespoke.data.text import WITHIN_TEXT, Tokenizer
from bespoke.data.turns import Glue, Turns
from bespoke.errors import DataError, TemplateError

__all__ = ["Marks", "check_turns_are_distinct"]

_SPACES = " \t\n\v\f\r"
_WORDS = re.compile(r"[ \t\n\v\f\r_0-9a-zA-Z\x80-\U0010ffff]*")
_MOST_BYTES = 64  # of a mark; a longer line is cut to its beginning


@dataclass(frozen=True)
class _Line:
    text: str
    spaced: str  # with the spaces around it


class Marks:
    """The marks of a template and a tokenizer. The template's markers must be protected already (`protect_markers`)."""

    def __init__(self, tokenizer: Tokenizer, turns: Turns) -> None:
        self._tokenizer = tokenizer
        marks: set[str] = set()
        for glue in turns.ordinary_glue():
            marks |= _marks_of(tokenizer, glue)
        glues = [tokenizer.encode_template(glue.text) for glue in turns.ordinary_glue()]
        self._is_spelled = {mark: _differs_spelled(tokenizer, mark, glues) for mark in sorted(marks)}
        self._known = {mark: tokenizer.known_part(mark)[0] for mark in self._is_spelled}

    def texts(self) -> list[str]:
        return list(self._is_spelled)

    def parts(self, content: str, subject: str) -> list[str]:
        """Cuts `content` into the parts that are tokenized one by one. Without a mark it is one part.

        DataError, naming `subject`, for a mark that is tokenized as its characters anyway, so that spelling changes nothing.
        """
        if not self._is_spelled:
            return [content]

        text = self._tokenizer.canonical(content)
        # The search is in the known part of the text: once bytes without a token are lost, other words may read as a mark.
        known, places = self._tokenizer.known_part(text)
        cuts: set[int] = set()
        for mark, is_spelled in self._is_spelled.items():
            sought = self._known[mark]
            at = known.find(sought) if sought else -1
            if at >= 0 and not is_spelled:
                raise DataError(
                    subject,
                    got=f"words that this tokenizer makes the same tokens of as the chat template's own {mark!r}",
                    expected="words that stay words",
                    next_step="Leave them out of the text",
                )
            while at >= 0:
                cuts.update(range(places[at], places[at + len(sought) - 1] + 2))
                at = known.find(sought, at + 1)

        if not cuts:
            return [content]
        borders = sorted(cuts | {0, len(text)})
        return [text[a:b] for a, b in pairwise(borders)]


def check_turns_are_distinct(tokenizer: Tokenizer, turns: Turns) -> None:
    """Raises TemplateError if turns are separated by white space or a single character: any message could hold that."""
    for glue in turns.ordinary_glue():
        if {glue.previous, glue.next} != {"user", "assistant"} or len(tokenizer.parts(glue.text)) > 1:
            continue
        known = [character for character in tokenizer.canonical(glue.text) if tokenizer.known_part(character)[0]]
        if len("".join(known).strip()) < 2:
            raise TemplateError(
                "The chat template",
                got=f"{glue.text!r} between the messages of {glue.previous} and {glue.next}",
                expected="words that the tokenizer knows or a special token, so that no message can hold another one",
                next_step="Use prompt and completion instead of messages, or another template",
            )


def _marks_of(tokenizer: Tokenizer, glue: Glue) -> set[str]:
    """The marks in one glue, by the rules at the top of this module."""
    opens = glue.previous == "start"
    parts = tokenizer.parts(glue.text)
    has_control = len(parts) > 1
    if opens and has_control:
        return set()

    lines = [line for part in parts if isinstance(part, str) for line in _lines(part)]
    if has_control:
        lines = [line for line in lines if not _WORDS.fullmatch(line.text)]
    kept = lines[-1:] if opens else [*lines[:1], *lines[-1:]]

    marks = {line.text for line in kept if not _WORDS.fullmatch(line.text)}
    if not opens:
        marks |= {line.spaced for line in kept if _WORDS.fullmatch(line.text)}
    return {_shortened(tokenizer.canonical(mark)) for mark in marks}


def _lines(text: str) -> list[_Line]:
    """The lines of `text` that are not empty."""
    lines = []
    at = 0
    for line in text.split("\n"):
        words = line.strip(_SPACES)
        if words:
            first = at + line.index(words)
            behind = first + len(words)
            left, right = len(text[:first].rstrip(_SPACES)), len(text) - len(text[behind:].lstrip(_SPACES))
            lines.append(_Line(words, text[left:right]))
        at += len(line) + 1
    return lines


def _shortened(mark: str) -> str:
    return mark.encode()[:_MOST_BYTES].decode(errors="ignore")


def _differs_spelled(tokenizer: Tokenizer, mark: str, glues: list[list[int]]) -> bool:
    """Whether no glue has the tokens of `mark` spelled.

    The first token is not compared, because it depends on the text before the mark.
    """
    tokens = [token for character in mark for token in tokenizer.encode(character, previous=WITHIN_TEXT)]
    rest = tokens[1:]
    return bool(rest) and not any(rest == glue[at : at + len(rest)] for glue in glues for at in range(len(glue)))
