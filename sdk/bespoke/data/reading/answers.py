# SPDX-License-Identifier: Apache-2.0
"""Detection of rows without an answer. Such a row has nothing to learn: it is dropped, and the file is still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bespoke.data.reading.columns import column_of

__all__ = ["without_answer"]

_ANSWERS = ("completion", "chosen", "text")


def without_answer(example: Mapping[str, Any], fields: Mapping[str, str], row: Mapping[str, Any]) -> str | None:
    """Why an example has nothing to learn, with the names that its row uses; None if it has an answer."""
    for name in _ANSWERS:
        if name in example and _is_empty(example[name]):
            column = column_of(name, fields)
            in_file = column if name in fields or name in row else "output"  # Alpaca's name for the completion
            return f"{in_file!r} is empty"
    messages = example.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping) and message.get("role") == "assistant" and _says_nothing(message):
            return "a message of the assistant is empty"
    return None


def _says_nothing(message: Mapping[str, Any]) -> bool:
    """Whether a message has neither words nor a tool call. The encoder refuses tool calls later, with the reason."""
    calls = message.get("tool_calls") or message.get("function_call")
    return "content" in message and _is_empty(message["content"]) and not calls


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
