# SPDX-License-Identifier: Apache-2.0
"""From an answer that the user corrected to an example: a pair of the better answer and of the one that was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bespoke.conversation import Conversation
from bespoke.errors import DataError, kind_of
from bespoke.remedies import setting

__all__ = ["corrected_text", "messages_of"]


def corrected_text(conversation: Conversation, better: str, *, has_turns: bool) -> dict[str, Any] | None:
    """Returns the example for the last answer of a conversation that continues a text. None: it was fed something else."""
    prompt, answer = conversation.last_answer
    if not isinstance(prompt, str):
        return None
    outside = {"as": "text"} if has_turns else {}  # a text is continued outside of the chat
    return {"prompt": prompt, "chosen": better, "rejected": answer, **outside}


def messages_of(answer: Conversation | Sequence[Mapping[str, Any]]) -> list[Any]:
    """Returns the messages up to and with the answer. Raises DataError for a value that has none."""
    if isinstance(answer, Conversation):
        prompt, words = answer.last_answer
        if not isinstance(prompt[0], Mapping):
            raise DataError(
                setting("answer"),
                got="a conversation of token ids",
                expected="one of messages or of a text",
                next_step="Converse in messages or text, because a correction is text",
            )
        return [*prompt, {"role": "assistant", "content": words}]
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
        raise DataError(
            setting("answer"),
            got=kind_of(answer),
            expected="a conversation, or messages that end with the answer",
            next_step="Give one of them",
        )
    return list(answer)
