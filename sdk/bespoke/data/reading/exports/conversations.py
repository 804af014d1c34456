# SPDX-License-Identifier: Apache-2.0
"""Messages of a chat as conversations of the shape `messages`.

Neighbouring messages of one side are one turn, its parts on lines of their own. A pause of more than four hours ends a
conversation, unless what follows is an answer of "me" to what stands in front of it: an answer keeps what it answers, however late.
A conversation begins with a turn of the user, and one without an answer is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["PAUSE_SECONDS", "Message", "conversations"]

PAUSE_SECONDS = 4 * 3600

BEFORE = "messages of the assistant's side with nothing in front of them to answer"
UNANSWERED = "messages of conversations without an answer"


@dataclass(frozen=True)
class Message:
    """`seconds`: when it was written, on any clock; None where it is not known."""

    role: Literal["user", "assistant"]
    text: str
    seconds: float | None = None


def conversations(messages: Iterable[Message], left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """Conversations in the order of the chat; `left_out` counts messages that are in none."""
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


def _parts(messages: Iterable[Message]) -> Iterator[list[Message]]:
    part: list[Message] = []
    for message in messages:
        if part and _ends(part[-1], message):
            yield part
            part = []
        part.append(message)
    if part:
        yield part


def _ends(last: Message, following: Message) -> bool:
    if last.seconds is None or following.seconds is None or (last.role, following.role) == ("user", "assistant"):
        return False
    return following.seconds - last.seconds > PAUSE_SECONDS
