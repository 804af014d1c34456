# SPDX-License-Identifier: Apache-2.0
"""Reads the messages of an example or a prompt from JSON values (bindings/native/src/text/messages.h).

A content is a text, or a list of parts of type text. Parts are joined with nothing between them, as chat templates join them.
`weight` 0 makes a message context: the model reads it and is not trained on it. `developer` is OpenAI's newer name for `system`.

"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from bespoke.errors import DataError, kind_of, shown

__all__ = ["ROLES", "Message", "Role", "read_messages"]

Role = Literal["system", "user", "assistant"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant")

# Names that other formats and APIs have for a role.
_OTHER_NAMES: dict[str, Role] = {
    "human": "user",
    "person": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "ai": "assistant",
}
_CALLS = ("tool_calls", "function_call")
_FORM = '{"role": "user", "content": "..."}'
_PARTS = 'text, or a list of {"type": "text", "text": "..."}'


class Message(NamedTuple):
    """A message of a conversation. One with `is_context` is never trained on, whatever its role."""

    role: Role
    content: str
    is_context: bool = False


def read_messages(messages: Any, subject: str) -> list[Message]:
    """Returns the messages of a JSON value. DataError, naming the message, if one is not {"role": ..., "content": ...}."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        got = "an empty list" if isinstance(messages, list) else kind_of(messages)
        raise DataError(subject, got=got, expected=f"a list of {_FORM}", next_step="Give at least one message")

    read = []
    for number, message in enumerate(messages):
        where = f"{subject}[{number}]"
        if not isinstance(message, Mapping):
            raise DataError(where, got=kind_of(message), expected=_FORM, next_step="Give each message as an object")
        role = _role(message.get("role"), where)
        if any(message.get(call) for call in _CALLS):
            raise DataError(
                where,
                got="a tool call",
                expected="text",
                next_step="Write the call into the content, as the model shall write it",
            )
        read.append(Message(role, _content(message.get("content"), where), _is_context(message.get("weight"), where)))
    roles = {message.get("role") for message in messages}
    if "developer" in roles and "system" in roles:
        raise DataError(
            subject,
            got="a message of the system and one of the developer",
            expected="one of them: both instruct the model",
            next_step="Join them into one system message",
        )
    return read


def _role(role: Any, where: str) -> Role:
    if role == "developer":
        return "system"
    if role in ROLES:
        return role

    next_step = "Rename or leave out this message"
    if isinstance(role, str):
        name = role.lower() if role.isascii() else role
        known = name if name in ROLES else _OTHER_NAMES.get(name)
        if known:
            next_step = f"Call this role {known}"
        elif name in ("tool", "function"):
            next_step = (
                "Write what it answered into a message of the user, as your app will give it, or leave this example out"
            )
    got = "no role" if role is None else _shown(role)
    raise DataError(f"{where}.role", got=got, expected=f"one of {', '.join(ROLES)}", next_step=next_step)


def _content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    where = f"{where}.content"
    if not isinstance(content, list | tuple):
        raise DataError(where, got=kind_of(content), expected="text", next_step="Give the content as one string")
    strange = next((part for part in content if not isinstance(part, Mapping)), None)
    if strange is not None or not content or None in content:
        got = f"a list that holds {kind_of(strange)}" if content else "an empty list"
        raise DataError(where, got=got, expected=_PARTS, next_step="Give the content as one string")
    for number, part in enumerate(content):
        kind, text = part.get("type"), part.get("text")
        if kind != "text":
            raise DataError(
                f"{where}[{number}]",
                got="a part without a type" if kind is None else f"a part of type {_shown(kind)}",
                expected="parts of type text",
                next_step="Say in a part of text what it holds, or leave this example out",
            )
        if not isinstance(text, str):
            raise DataError(
                f"{where}[{number}].text",
                got=kind_of(text),
                expected="text",
                next_step="Give the text of a part as one string",
            )
    return "".join(part["text"] for part in content)


def _is_context(weight: Any, where: str) -> bool:
    if weight is None:
        return False
    if isinstance(weight, bool | int | float) and weight in (0, 1):
        return not weight
    raise DataError(
        f"{where}.weight",
        got=_shown(weight),
        expected="0 or 1",
        next_step="Give 0 to keep the message as context that is not trained on, 1 or no weight otherwise",
    )


def _shown(value: Any) -> str:
    return shown(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else kind_of(value)
