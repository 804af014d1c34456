# SPDX-License-Identifier: Apache-2.0
"""Examples and their ids on the way to the device core, which takes JSON: what is none is refused here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bespoke.data.shapes import shape_of
from bespoke.errors import DataError, kind_of

__all__ = ["example_id", "example_json", "no_json"]

MAX_ID_CHARACTERS = 256
MAX_BYTES = 16 * 2**20


def example_json(example: Mapping[str, Any], subject: str = "example") -> str:
    """The JSON of an example of one of the shapes. DataError, naming `subject`, for another."""
    shape_of(example, subject)
    try:
        text = json.dumps(example, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            subject,
            got=no_json(error),
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
    """An id that the core takes, or judges. DataError for one that is no text, or that the core would take for none."""
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


def no_json(error: Exception) -> str:
    """In our words: json's are of Python."""
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair"
    if isinstance(error, RecursionError):
        return "lists or objects nested too deeply"
    return "a number that is not finite" if isinstance(error, ValueError) else "something else than JSON's values"
