# SPDX-License-Identifier: Apache-2.0
"""Readers for `conversations.json` of ChatGPT and of Claude. These files say who is the user and who the assistant.

ChatGPT keeps a tree of messages, and an edited question begins another branch of it. The reader takes the branch that the app
shows: it goes from the last message, `current_node`, to the root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bespoke.data.reading.exports.conversations import ChatMessage, conversations
from bespoke.errors import DataError, kind_of

__all__ = ["chatgpt", "claude"]

BRANCHES = "messages of branches that were edited away"
HIDDEN = "hidden messages"
PICTURES = "images and other files"
EMPTY = "messages without words"
_CHECK = "Check which app the export is of"


def chatgpt(document: Any, where: str, left_out: Counter[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (place of the chat, conversation)."""
    for number, chat in enumerate(_list(document, where, "conversations"), start=1):
        here = f"{where}, row {number}"
        mapping = chat.get("mapping") if isinstance(chat, Mapping) else None
        if not isinstance(mapping, Mapping):
            raise DataError(here, got=_keys(chat), expected="'mapping', as in an export of ChatGPT", next_step=_CHECK)

        path = _shown_branch(mapping, chat.get("current_node"))
        others = [node for name, node in mapping.items() if name not in path and isinstance(node, Mapping)]
        left_out[BRANCHES] += sum(_role(node.get("message")) in ("user", "assistant") for node in others)

        shown = [mapping[name].get("message") for name in path]
        messages = [message for entry in shown if (message := _chatgpt_message(entry, left_out)) is not None]
        for conversation in conversations(messages, left_out):
            yield number, conversation


def _shown_branch(mapping: Mapping[str, Any], last: Any) -> dict[str, None]:
    """Names of the nodes from the root to `last`, as an ordered set. Without a `last`, it follows the newest children."""
    nodes = {name: node for name, node in mapping.items() if isinstance(node, Mapping)}
    if not isinstance(last, str) or last not in nodes:
        last = next((name for name, node in nodes.items() if not isinstance(node.get("parent"), str)), None)
        seen = {last}
        while last is not None:
            children = nodes[last].get("children")
            child = children[-1] if isinstance(children, list) and children else None
            if not isinstance(child, str) or child not in nodes or child in seen:
                break
            seen.add(child)
            last = child

    path: dict[str, None] = {}
    while isinstance(last, str) and last in nodes and last not in path:
        path[last] = None
        last = nodes[last].get("parent")
    return dict.fromkeys(reversed(path))


def _role(message: Any) -> Any:
    author = message.get("author") if isinstance(message, Mapping) else None
    return author.get("role") if isinstance(author, Mapping) else None


def _chatgpt_message(message: Any, left_out: Counter[str]) -> ChatMessage | None:
    if not isinstance(message, Mapping):
        return None  # the root
    role, content, metadata = _role(message), message.get("content"), message.get("metadata")
    content = content if isinstance(content, Mapping) else {}
    if role not in ("user", "assistant"):
        left_out[f"messages of {role if role in ('system', 'tool') else 'others'}"] += 1
        return None
    is_hidden = isinstance(metadata, Mapping) and metadata.get("is_visually_hidden_from_conversation")
    if is_hidden or message.get("weight") == 0:
        left_out[HIDDEN] += 1
        return None
    if message.get("recipient") not in (None, "all") or content.get("content_type") not in ("text", "multimodal_text"):
        left_out["calls of tools and thoughts"] += 1
        return None

    parts = content.get("parts")
    parts = parts if isinstance(parts, list) else []
    left_out[PICTURES] += sum(not isinstance(part, str) for part in parts)
    return _message(role, "".join(part for part in parts if isinstance(part, str)), left_out)


def claude(document: Any, where: str, left_out: Counter[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (place of the chat, conversation)."""
    for number, chat in enumerate(_list(document, where, "conversations"), start=1):
        here = f"{where}, row {number}"
        entries = chat.get("chat_messages") if isinstance(chat, Mapping) else None
        if not isinstance(entries, list):
            raise DataError(
                here, got=_keys(chat), expected="'chat_messages', as in an export of Claude", next_step=_CHECK
            )

        messages = [message for entry in entries if (message := _claude_message(entry, left_out)) is not None]
        for conversation in conversations(messages, left_out):
            yield number, conversation


def _claude_message(message: Any, left_out: Counter[str]) -> ChatMessage | None:
    sender = message.get("sender") if isinstance(message, Mapping) else None
    role = {"human": "user", "assistant": "assistant"}.get(str(sender))
    if role is None:
        left_out["messages of others"] += 1
        return None

    for name in ("attachments", "files"):
        files = message.get(name)
        left_out[PICTURES] += len(files) if isinstance(files, list) else 0

    blocks = message.get("content")
    if isinstance(blocks, list) and blocks:
        # Not `text`: where blocks are not text, it holds a notice that they are not shown.
        texts = [block["text"] for block in blocks if _is_text(block)]
        left_out["calls of tools and thoughts"] += len(blocks) - len(texts)
        return _message(role, "\n".join(text for text in texts if text.strip()), left_out)
    text = message.get("text")
    return _message(role, text if isinstance(text, str) else "", left_out)


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _message(role: Any, text: str, left_out: Counter[str]) -> ChatMessage | None:
    if not text.strip():
        left_out[EMPTY] += 1
        return None
    return ChatMessage(role, text)


def _list(document: Any, where: str, members: str) -> list[Any]:
    if not isinstance(document, list):
        raise DataError(
            where,
            got=kind_of(document),
            expected=f"a list of {members}",
            next_step="Give conversations.json of the export",
        )
    return document


def _keys(value: Any) -> str:
    if not isinstance(value, Mapping):
        return kind_of(value)
    return f"the keys {', '.join(map(repr, list(value)[:12])) or 'none'}"
