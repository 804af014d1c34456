# SPDX-License-Identifier: Apache-2.0
"""Parsing of JSON values, with errors that say where the text is not JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bespoke.data.reading.text_lines import whole_text
from bespoke.errors import DataError

__all__ = ["documents", "is_json", "json_document", "parsed"]

_SPACE = " \t\r\n"
_decoder = json.JSONDecoder()


def json_document(path: Path, encoding: str | None = None) -> Any:
    """The value of an export's file, which is one JSON document."""
    return parsed(whole_text(path, encoding), str(path), "Check which app the export is of")


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def documents(path: Path, text: str, next_step: str) -> list[tuple[int, Any]]:
    """(line, value) of each value in `text`. There may be several, one after the other, each on many lines."""
    values: list[tuple[int, Any]] = []
    at, counted, line = _skip_space(text, 0), 0, 1
    while at < len(text):
        line, counted = line + text.count("\n", counted, at), at
        with _refusing(str(path) if text[at] == "[" else f"{path}, row {line}", next_step):
            value, end = _decoder.raw_decode(text, at)
        values.append((line, value))
        at = _skip_space(text, end)
    return values


def _skip_space(text: str, at: int) -> int:
    """The first place from `at` on that is not white space."""
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def parsed(text: str, where: str, next_step: str) -> Any:
    """The value of a text that is one JSON document. DataError, naming `where`, for any other text."""
    with _refusing(where, next_step):
        return json.loads(text)


@contextmanager
def _refusing(where: str, next_step: str) -> Iterator[None]:
    try:
        yield
        return
    except ValueError as error:
        got = f"no JSON: {error}"
    except RecursionError:
        got = "JSON nested too deeply"
    raise DataError(where, got=got, expected="one JSON object", next_step=next_step)
