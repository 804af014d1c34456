# SPDX-License-Identifier: Apache-2.0
"""Cuts the messages of a chat into conversations of the shape `messages`.

Messages in a row from the same role become one turn, each on its own line. A pause of more than four hours ends a conversation.
An answer is the exception: it stays with the question, however late it is. A conversation begins with a turn of the user. One
without an answer is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["PAUSE_SECONDS", "ChatMessage", "conversations"]

PAUSE_SECONDS = 4 * 3600

BEFORE = "messages of the assistant's side with nothing in front of them to answer"
UNANSWERED = "messages of conversations without an answer"


@dataclass(frozen=True)
class ChatMessage:
    """A message of a chat. `seconds` is when it was written, on any clock, or None if that is unknown."""

    role: Literal["user", "assistant"]
    text: str
    seconds: float | None = None


def conversations(messages: Iterable[ChatMessage], left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yields conversations in the order of the chat. `left_out` counts the messages that none of them has."""
    for part in _parts(messages):
        first = next((i for i, message in enumerate(part) if message.role == "user"), len(part))
        left_out[BEFORE] += first
        kept = part[first:]
        if not any(message.role == "assistant" for message in kept):
            left_out[UNANSWERED] += len(kept)
            continue

        turns: list[dict[str, Any]] = []
        for message in kept:
            if turns and turns[-1]["role"] == message.role:
                turns[-1]["content"] += "\n" + message.text
            else:
                turns.append({"role": message.role, "content": message.text})
        yield {"messages": turns}


def _parts(messages: Iterable[ChatMessage]) -> Iterator[list[ChatMessage]]:
    """Splits a chat at its long pauses."""
    part: list[ChatMessage] = []
    for message in messages:
        if part and _ends(part[-1], message):
            yield part
            part = []
        part.append(message)
    if part:
        yield part


def _ends(last: ChatMessage, following: ChatMessage) -> bool:
    """Whether a conversation ends between these two messages."""
    if last.seconds is None or following.seconds is None or (last.role, following.role) == ("user", "assistant"):
        return False
    return following.seconds - last.seconds > PAUSE_SECONDS
