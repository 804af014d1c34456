# SPDX-License-Identifier: Apache-2.0
"""Reader for `result.json` of Telegram Desktop, which holds one chat or all. A message's text is a string or a list of parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from bespoke.data.reading.exports.names import Chat, NamedMessage, as_conversations
from bespoke.errors import DataError, kind_of

__all__ = ["telegram"]

_CHECK = "Check which app the export is of"
_FILES = ("photo", "file", "media_type", "contact_information", "location_information", "poll")


def telegram(document: Any, where: str, me: str | None, left_out: Counter[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (place of the chat, conversation). The words of `me` become the assistant's, all others the user's."""
    chats = enumerate(_chats(document, where), start=1)
    messages = [_chat(chat, f"{where}, chat {number}", left_out) for number, chat in chats]
    yield from as_conversations(messages, where, me, left_out)


def _chats(document: Any, where: str) -> list[Any]:
    chats = document.get("chats") if isinstance(document, Mapping) else None
    listed = chats.get("list") if isinstance(chats, Mapping) else None
    if isinstance(listed, list):
        return listed
    if isinstance(document, Mapping) and "messages" in document:
        return [document]

    got = kind_of(document)
    if isinstance(document, Mapping):
        got = f"the keys {', '.join(map(repr, list(document)[:12]))}"
    raise DataError(where, got=got, expected="'messages', or 'chats', as in result.json of Telegram", next_step=_CHECK)


def _chat(chat: Any, where: str, left_out: Counter[str]) -> Chat:
    messages = chat.get("messages") if isinstance(chat, Mapping) else None
    if not isinstance(messages, list):
        raise DataError(where, got=kind_of(chat), expected="a chat with 'messages'", next_step=_CHECK)
    return [written for message in messages if (written := _written(message, left_out)) is not None]


def _written(message: Any, left_out: Counter[str]) -> NamedMessage | None:
    if not isinstance(message, Mapping) or message.get("type") != "message":
        left_out["notices of the app"] += 1
        return None
    if message.get("forwarded_from"):
        left_out["forwarded messages"] += 1
        return None

    has_file = any(key in message for key in _FILES)
    left_out["images and other files"] += has_file
    text = _text(message.get("text"))
    if not text.strip():
        left_out["messages without words"] += not has_file
        return None
    writer = message.get("from")
    return NamedMessage(writer if isinstance(writer, str) else "", text, _seconds(message))


def _text(value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _seconds(message: Mapping[str, Any]) -> float | None:
    try:
        if "date_unixtime" in message:
            return float(message["date_unixtime"])
        date = datetime.fromisoformat(message["date"])
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
