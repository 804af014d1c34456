# SPDX-License-Identifier: Apache-2.0
"""Chat templates as data (turns.json), so that a device needs no template engine.

A conversation is contents with *glue* between them. The glue before a message depends on the role before it, its own role and
whether it is the last message. "start" stands for the role before the first message. "end" or "generate" stands for the role after
the last: "generate" glue is the header of an answer. Some templates strip contents, so the stripped characters are listed. An
*ending* is the beginning of the glue behind a role's messages, which closes the turn. It is trained together with the content, so
that the model learns to stop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError, model_validator

from bespoke.config import Settings
from bespoke.data.messages import ROLES, Message, Role, read_messages
from bespoke.errors import BundleError, DataError

if TYPE_CHECKING:
    from bespoke.data.text import Tokenizer

__all__ = ["ROLES", "Ending", "Glue", "Piece", "Role", "Trim", "Turns", "protect_markers", "stop_ids"]

Place = Literal["start", "system", "user", "assistant", "end", "generate"]
LARGEST_BYTES = 1 << 20
_SHOWN_ROLES = 12


@dataclass(frozen=True)
class Piece:
    """A part of a rendered conversation.

    role:          the message's role for a content or an ending. None for other text, except what the model writes before a
                   content: that has the role assistant.
    is_content:    whether the text is the content of a message.
    begins_answer: whether the prompt for this answer is the text before this piece.
    """

    text: str
    role: Role | None
    is_content: bool
    begins_answer: bool = False


class Glue(Settings):
    """The text between `previous` and `next`. `last` says that `next` is the last message ("end", "generate": false)."""

    previous: Place
    next: Place
    last: bool
    text: str


class Trim(Settings):
    """The characters that are stripped from the ends of a content of `role` after `previous`, however many there are."""

    previous: Place
    role: Role
    last: bool
    left: str
    right: str


class Ending(Settings):
    """The text that closes a turn. Every glue behind this role begins with it."""

    role: Role
    text: str


class Turns(Settings):
    """A compiled chat template. Entries are sorted and unique, so that one template gives one file."""

    glue: tuple[Glue, ...]
    trims: tuple[Trim, ...]
    endings: tuple[Ending, ...]

    @model_validator(mode="after")
    def _is_consistent(self) -> Turns:
        for name, keys in (
            ("glue", [(g.previous, g.next, g.last) for g in self.glue]),
            ("trims", [(t.previous, t.role, t.last) for t in self.trims]),
            ("endings", [e.role for e in self.endings]),
        ):
            if keys != sorted(set(keys)):
                raise ValueError(f"{name} is not sorted and without repeats")
        for ending in self.endings:
            if not all(g.text.startswith(ending.text) for g in self.glue if g.previous == ending.role):
                raise ValueError(f"the ending {ending.text!r} does not begin every glue behind {ending.role}")
        return self

    @cached_property
    def _glue(self) -> dict[tuple[str, str, bool], str]:
        return {(g.previous, g.next, g.last): g.text for g in self.glue}

    @cached_property
    def _trims(self) -> dict[tuple[str, str, bool], Trim]:
        return {(t.previous, t.role, t.last): t for t in self.trims}

    @cached_property
    def _endings(self) -> dict[str, str]:
        return {e.role: e.text for e in self.endings}

    def ending(self, role: Role) -> str:
        """The text that ends a turn of `role`, "" if the template has none."""
        return self._endings.get(role, "")

    def markers(self) -> list[str]:
        """The texts that hold a template's turn tokens: the glue of ordinary turns, and the endings."""
        return [g.text for g in self.ordinary_glue()] + [e.text for e in self.endings]

    def ordinary_glue(self) -> list[Glue]:
        """The glue before messages, without glue that only stands before a last message."""
        return [g for g in self.glue if not g.last and g.next in ROLES]

    def knows(self, previous: str, following: str, last: bool) -> bool:
        """Whether the template has glue between `previous` and `following`."""
        return (previous, following, last) in self._glue

    def render(
        self, messages: Sequence[Mapping[str, Any]], generate: bool = False, subject: str = "messages"
    ) -> list[Piece]:
        """The pieces of the template's text. With `generate` they end with the header of the assistant's answer.

        DataError for a message that is not {"role": ..., "content": text}, and for an order of roles that the template lacks.
        """
        return self.pieces(read_messages(messages, subject), generate, subject)

    def pieces(self, messages: Sequence[Message], generate: bool, subject: str) -> list[Piece]:
        """The pieces of the template's text for messages that `read_messages` returned."""
        line: list[str] = ["start", *(message.role for message in messages), "generate" if generate else "end"]
        pieces: list[Piece] = []
        for index in range(len(line) - 1):
            previous, following = line[index], line[index + 1]
            last = index == len(messages) - 1
            text = self._glue.get((previous, following, last))
            if text is None:
                raise self._no_such_order(line, index, subject)

            ending = "" if index == 0 else self._endings.get(previous, "")
            if ending:
                pieces.append(Piece(ending, messages[index - 1].role, False))
            answers = following == "assistant"
            prompt = max(len(ending), self._prompt_size(previous, text) if answers else len(text))
            if text[len(ending) : prompt]:
                pieces.append(Piece(text[len(ending) : prompt], None, False))
            if text[prompt:]:
                pieces.append(Piece(text[prompt:], "assistant", False, answers))

            if index < len(messages):
                role, content, _ = messages[index]
                trim = self._trims.get((previous, role, last))
                if trim is not None:
                    content = content.lstrip(trim.left) if trim.left else content
                    content = content.rstrip(trim.right) if trim.right else content
                pieces.append(Piece(content, role, True, answers and not text[prompt:]))
        return pieces

    def _prompt_size(self, previous: str, text: str) -> int:
        """The length of the beginning of an answer's glue that its prompt ends with. All of it if the prompt ends otherwise."""
        prompt = self._glue.get((previous, "generate", False))
        return len(prompt) if prompt is not None and text.startswith(prompt) else len(text)

    def _no_such_order(self, line: Sequence[str], index: int, subject: str) -> DataError:
        previous, following = line[index], line[index + 1]
        after = sorted({g.next for g in self.glue if g.previous == previous and g.next not in ("end", "generate")})
        if following == "system" and previous == "start":
            hint = "This model's template takes no system message: put those words into the first user message"
        elif previous == following:
            hint = f"Join neighbouring {previous} messages into one"
        else:
            hint = "Order the messages as: system (if any), user, assistant, user, assistant, ..."
        return DataError(
            subject,
            got=f"the roles {_shown_roles(line[1:-1], index)}: {following!r} after {previous!r}",
            expected=f"after {previous!r} one of {', '.join(after) or 'no message'}",
            next_step=hint,
        )

    def to_bytes(self) -> bytes:
        """The contents of turns.json. Equal turns give equal bytes."""
        return (json.dumps(self.model_dump(), ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, subject: str = "turns.json") -> Turns:
        """Turns from the contents of turns.json. BundleError for an unknown or missing field or a repeated entry."""
        problem = f"{len(data)} bytes" if len(data) > LARGEST_BYTES else None
        if problem is None:
            try:
                return cls.model_validate_json(data)
            except ValidationError as error:
                first = error.errors()[0]
                problem = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
        raise BundleError(
            subject,
            got=problem,
            expected=f"glue, trims and endings of a chat template, at most {LARGEST_BYTES} bytes",
            next_step="Build the bundle again",
        )


def protect_markers(tokenizer: Tokenizer, turns: Turns) -> None:
    """Protects the added tokens of which the template's turns are written, so that no message may forge a turn.

    A token of white space alone carries no structure and stays unprotected.
    """
    for text in turns.markers():
        tokenizer.protect(token for token in tokenizer.added_tokens_in(text) if token.strip(" \t\n\v\f\r"))


def stop_ids(tokenizer: Tokenizer, turns: Turns | None) -> set[int]:
    """The tokens that end an answer: eos, and the token that ends the assistant's turn."""
    stops = set() if tokenizer.eos_id is None else {tokenizer.eos_id}
    ending = turns.ending("assistant") if turns is not None else ""
    tokens = tokenizer.encode_template(ending) if ending else []
    return stops | set([token for token in tokens if token in tokenizer.control_ids][:1])


def _shown_roles(roles: Sequence[str], place: int) -> str:
    """The roles of a conversation as text. Of a long conversation only those up to `place` are named."""
    if len(roles) <= _SHOWN_ROLES:
        return " ".join(roles)
    end = min(place + 1, len(roles))
    begin = max(0, end - _SHOWN_ROLES)
    return ("... " if begin else "") + " ".join(roles[begin:end]) + (" ..." if end < len(roles) else "")
