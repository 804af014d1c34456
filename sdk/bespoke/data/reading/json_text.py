# SPDX-License-Identifier: Apache-2.0
"""JSON values out of text, with errors that say where the text is none."""

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
    """The one value that an export holds."""
    return parsed(whole_text(path, encoding), str(path), "Check which app the export is of")


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def documents(path: Path, text: str, next_step: str) -> list[tuple[int, Any]]:
    """(line, value) of each value: a document of many lines, or several behind each other."""
    found: list[tuple[int, Any]] = []
    at, counted, line = _after(text, 0), 0, 1
    while at < len(text):
        line, counted = line + text.count("\n", counted, at), at
        with _refusing(str(path) if text[at] == "[" else f"{path}, row {line}", next_step):
            value, end = _decoder.raw_decode(text, at)
        found.append((line, value))
        at = _after(text, end)
    return found


def _after(text: str, end: int) -> int:
    while end < len(text) and text[end] in _SPACE:
        end += 1
    return end


def parsed(text: str, where: str, next_step: str) -> Any:
    """The one value that a text is."""
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
