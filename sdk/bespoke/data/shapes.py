# SPDX-License-Identifier: Apache-2.0
"""The shapes that an example may have. Its keys alone decide which one it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bespoke.errors import DataError, kind_of

__all__ = ["FIELDS", "OPTIONAL_FIELDS", "Format", "says", "shape_of"]

Format = Literal["messages", "prompt_completion", "preference", "text", "tokens"]  # tokens: for a bundle that takes token ids only

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


def says(example: Mapping[str, Any], name: str, word: str, subject: str, meaning: str) -> bool:
    """Whether the optional field `name` of an example is `word`, the only one that it may have. DataError for another."""
    value = example.get(name)
    if value is not None and value != word:
        raise DataError(
            f"{subject}.{name}",
            got=repr(value)[:100],
            expected=f"{word!r}, or no such key",
            next_step=f"Write {word!r} for {meaning}",
        )
    return value is not None


def shape_of(example: Mapping[str, Any], subject: str = "example") -> Format:
    """The one shape whose keys `example` has; none, or several, is a DataError."""
    if not isinstance(example, Mapping):
        raise DataError(
            subject,
            got=kind_of(example),
            expected="an object with messages, prompt and completion, prompt with chosen and rejected, or text",
            next_step="Give one JSON object per example",
        )
    found = [shape for shape, fields in FIELDS.items() if all(field in example for field in fields)]
    if len(found) == 1:
        return found[0]
    keys = ", ".join(repr(str(key)) for key in list(example)[:12]) or "none"
    if not found:
        raise DataError(
            subject,
            got=f"the keys {keys}",
            expected="'messages', 'prompt' and 'completion', 'prompt', 'chosen' and 'rejected', or 'text'",
            next_step="Rename the keys, or map them: fields={'prompt': 'question', 'completion': 'answer'}",
        )
    raise DataError(
        subject,
        got=f"keys of several shapes ({' and '.join(found)})",
        expected="one of them",
        next_step="Name the one to use with format=, or remove the others",
    )
