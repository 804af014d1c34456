# SPDX-License-Identifier: Apache-2.0
"""The kinds of chat exports: reads each of them, and recognizes one that was given as a file of examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from bespoke.data.reading.exports.assistants import chatgpt, claude
from bespoke.data.reading.exports.telegram import telegram
from bespoke.data.reading.exports.whatsapp import begins_like_whatsapp, whatsapp
from bespoke.data.reading.json_text import json_document
from bespoke.data.reading.text_lines import checked_encoding
from bespoke.errors import ConfigError, DataError
from bespoke.remedies import setting

__all__ = ["EXPORTS", "WITH_ROLES", "Export", "WithRoles", "export_of", "export_text", "read_export", "refuse_export"]

WithRoles = Literal["chatgpt", "claude"]  # these files say who is the assistant
Export = Literal["whatsapp", "telegram", "chatgpt", "claude"]
WITH_ROLES: tuple[WithRoles, ...] = get_args(WithRoles)
EXPORTS: tuple[Export, ...] = get_args(Export)
_FIRST_LINES = 20


def read_export(
    path: Path, kind: Export, me: str | None, left_out: Counter[str], encoding: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (place in the file, conversation) of an export.

    In WhatsApp and Telegram, `me` names the person whose words become the assistant's. `left_out` counts the messages that no
    conversation has, by their kind.

    ConfigError for a name that the file does not have. DataError for a file that is not such an export or has no conversation.
    """
    encoding = checked_encoding(encoding)
    if kind in WITH_ROLES and me is not None:
        raise ConfigError(
            setting("me"),
            got=repr(me),
            expected=f"no name: an export of {kind} says who the user and who the assistant is",
            next_step="Leave it out",
        )

    if kind == "whatsapp":
        examples = whatsapp(path, me, left_out, encoding)
    elif kind == "telegram":
        examples = telegram(json_document(path, encoding), str(path), me, left_out)
    else:
        examples = (chatgpt if kind == "chatgpt" else claude)(json_document(path, encoding), str(path), left_out)

    first = next(examples, None)
    if first is None:
        counts = ", ".join(f"{count} {what}" for what, count in left_out.items() if count) or "no messages"
        raise DataError(
            str(path),
            got=f"no conversation with an answer ({counts})",
            expected="messages of two sides, one answering the other",
            next_step="Check who is named as me" if kind not in WITH_ROLES else "Check the file",
        )
    yield first
    yield from examples


def export_of(document: Any) -> Export | None:
    """The kind of export that a JSON value is, None if it is not one."""
    first = document[0] if isinstance(document, list) and document else None
    if isinstance(first, Mapping):
        if isinstance(first.get("mapping"), Mapping):
            return "chatgpt"
        return "claude" if isinstance(first.get("chat_messages"), list) else None
    if not isinstance(document, Mapping):
        return None

    chats, messages = document.get("chats"), document.get("messages")
    if isinstance(chats, Mapping) and isinstance(chats.get("list"), list):
        return "telegram"
    message = messages[0] if isinstance(messages, list) and messages else None
    if isinstance(message, Mapping) and message.get("type") in ("message", "service") and "role" not in message:
        return "telegram"
    return None


def export_text(text: str) -> Export | None:
    """The kind of export that a text is, None if it is not one."""
    return "whatsapp" if begins_like_whatsapp(text.split("\n", _FIRST_LINES)[:_FIRST_LINES]) else None


def refuse_export(path: Path, kind: Export) -> NoReturn:
    """Raises DataError with the command that converts the export to examples."""
    me = "" if kind in WITH_ROLES else " --me NAME"
    as_text = "; or, to learn it as one text, name the format text" if kind == "whatsapp" else ""
    names = {"whatsapp": "WhatsApp", "telegram": "Telegram", "chatgpt": "ChatGPT", "claude": "Claude"}
    raise DataError(
        str(path),
        got=f"an export of {names[kind]}",
        expected="examples",
        next_step=f"Make examples of it first: bespoke read {path.name} --as {kind}{me} --out examples.jsonl{as_text}",
    )
