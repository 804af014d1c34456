# SPDX-License-Identifier: Apache-2.0
"""The shapes that an example may have. The keys of an example alone decide its shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bespoke.errors import DataError, kind_of
from bespoke.remedies import Like, setting

__all__ = ["FIELDS", "OPTIONAL_FIELDS", "Format", "refuse_chat_table", "shape_of", "shapes_of"]

# A bundle that takes token ids only has the shape tokens.
Format = Literal["messages", "prompt_completion", "preference", "text", "tokens"]

FIELDS: dict[Format, tuple[str, ...]] = {
    "messages": ("messages",),
    "prompt_completion": ("prompt", "completion"),
    "preference": ("prompt", "chosen", "rejected"),
    "text": ("text",),
    "tokens": ("tokens",),
}
OPTIONAL_FIELDS: dict[Format, tuple[str, ...]] = {
    "messages": (),
    "prompt_completion": ("as",),
    "preference": ("as",),
    "text": ("end",),
    "tokens": ("mask",),
}


def shapes_of(example: Mapping[str, Any]) -> list[Format]:
    """The shapes whose keys are all in `example`."""
    return [shape for shape, fields in FIELDS.items() if all(field in example for field in fields)]


def shape_of(example: Mapping[str, Any], subject: str = "example") -> Format:
    """The shape of `example`. DataError if its keys fit no shape or several."""
    if not isinstance(example, Mapping):
        raise DataError(
            subject,
            got=kind_of(example),
            expected="an object with messages, prompt and completion, prompt with chosen and rejected, or text",
            next_step="Give one JSON object per example",
        )

    shapes = shapes_of(example)
    if len(shapes) == 1:
        return shapes[0]

    keys = ", ".join(repr(str(key)) for key in list(example)[:12]) or "none"
    if not shapes:
        raise DataError(
            subject,
            got=f"the keys {keys}",
            expected="'messages', 'prompt' and 'completion', 'prompt', 'chosen' and 'rejected', or 'text'",
            next_step="Rename the keys, or map them: "
            + setting("fields", {"prompt": "question", "completion": "answer"}),
        )
    raise DataError(
        subject,
        got=f"keys of several shapes ({' and '.join(shapes)})",
        expected="one of them",
        next_step="Name the one to use with " + setting("format") + ", or remove the others",
    )


# Columns of a table that has one message of a chat in each row, in lower case.
_SENDERS = ("sender", "sender_name", "from", "speaker", "author", "absender", "von")
_TEXTS = ("text", "message", "content", "body", "msg", "nachricht")
_TIMES = ("date", "time", "timestamp", "datetime", "sent", "sent_at", "created_at", "datum", "zeit")


def refuse_chat_table(row: Mapping[str, Any], subject: str) -> None:
    """Raises DataError for a row of a chat table: one message with its sender and time is not an example."""
    columns = {key.lower().strip(): key for key in row if isinstance(key, str)}
    sender, text, time = (
        next((columns[name] for name in names if name in columns), None) for names in (_SENDERS, _TEXTS, _TIMES)
    )
    if sender is None or text is None or time is None:
        return
    raise DataError(
        subject,
        got=f"one message in each row, by {sender!r} at {time!r}",
        expected="one conversation in each row",
        next_step=f"Join the rows to messages, yours of {sender!r} as the assistant's (docs/how_to/collect_examples.md, A chat in "
        f"a table); or, to learn each {text!r} alone as 'text', name the column that holds it: "
        + setting("fields", Like("{name: column}", "NAME=COLUMN")),
    )
