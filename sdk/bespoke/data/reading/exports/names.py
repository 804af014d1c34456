# SPDX-License-Identifier: Apache-2.0
"""Conversations from chats between people. The model learns the words of one of them, "me": they become the assistant's."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bespoke.data.reading.exports.conversations import ChatMessage, conversations
from bespoke.errors import ConfigError, shown
from bespoke.remedies import setting

__all__ = ["Chat", "NamedMessage", "as_conversations"]

_MOST_NAMES = 12


@dataclass(frozen=True)
class NamedMessage:
    """A message, with the name of its writer."""

    writer: str
    text: str
    seconds: float | None


Chat = list[NamedMessage]


def as_conversations(
    chats: Sequence[Chat], where: str, me: str | None, left_out: Counter[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (place of the chat, conversation). ConfigError, with the names in the file, unless `me` is one of them."""
    names = Counter(message.writer for chat in chats for message in chat if message.writer)
    mine = {name for name in names if me is not None and (name == me or _plain(name) == _plain(me))}
    if me in mine:
        mine = {me}

    if not mine:
        there = ", ".join(shown(name) for name, _ in names.most_common(_MOST_NAMES))
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        raise ConfigError(
            setting("me"),
            got="no name" if me is None else f"{shown(me)}, who wrote nothing in {where}",
            expected=f"one of {there}{more}" if names else "a name; the file has messages of nobody",
            next_step="Name yourself as the file does: " + setting("me", next(iter(names)))
            if names
            else "Check which app the export is of",
        )

    for number, chat in enumerate(chats, start=1):
        messages = [
            ChatMessage("assistant" if message.writer in mine else "user", message.text, message.seconds)
            for message in chat
        ]
        for conversation in conversations(messages, left_out):
            yield number, conversation


def _plain(name: str) -> str:
    """A name without invisible differences: direction marks, kinds of spaces, composed letters. Case is ignored too."""
    seen = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
    return " ".join(seen.casefold().split())
