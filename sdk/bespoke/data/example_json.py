# SPDX-License-Identifier: Apache-2.0
"""Examples and their ids as the JSON that the device core takes. Values that JSON cannot hold are refused here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bespoke.data.shapes import shape_of
from bespoke.errors import DataError, kind_of

__all__ = ["example_id", "example_json", "why_not_json"]

MAX_ID_CHARACTERS = 256
MAX_BYTES = 16 * 2**20


def example_json(example: Mapping[str, Any], subject: str = "example") -> str:
    """The JSON of an example. DataError, naming `subject`, for a value that has none of the shapes."""
    shape_of(example, subject)
    try:
        text = json.dumps(example, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            subject,
            got=why_not_json(error),
            expected="what JSON can hold",
            next_step="Use text, finite numbers, lists and objects",
        ) from error
    if size > MAX_BYTES:  # before the core reads all of it to say the same
        raise DataError(
            subject,
            got=f"{size} bytes of JSON",
            expected=f"at most {MAX_BYTES}",
            next_step="Cut it into several examples",
        )
    return text


def example_id(id: str) -> str:
    """Returns `id`, checked. DataError unless it is a text of at least one character; the core checks the rest."""
    problem = ""
    if not isinstance(id, str):
        problem = kind_of(id)
    elif not id:
        problem = "0 characters"
    else:
        try:
            id.encode()
        except UnicodeEncodeError:
            problem = "half of a surrogate pair"
    if problem:
        expected = f"text of 1 to {MAX_ID_CHARACTERS} characters"
        raise DataError("id of an example", got=problem, expected=expected, next_step="Use another id, or none")
    return id


def why_not_json(error: Exception) -> str:
    """The reason for an error of `json.dumps`, in words about JSON instead of Python."""
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair"
    if isinstance(error, RecursionError):
        return "lists or objects nested too deeply"
    return "a number that is not finite" if isinstance(error, ValueError) else "something else than JSON's values"
