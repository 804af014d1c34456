# SPDX-License-Identifier: Apache-2.0
"""Reader for JSON in the layouts that data sets use: one object a line, or a document on one line or many.

A document is one of these:

- an array of rows, or one row
- a list of rows under one key: {"train": [...]}, {"data": {"rows": [...]}}
- columns: {"prompt": [...], "completion": [...]}
- several objects one after the other

A row that is a list of messages is a conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from bespoke.data.reading.exports.kinds import export_of, refuse_export
from bespoke.data.reading.json_text import documents, is_json, parsed
from bespoke.data.reading.text_lines import text_lines, whole_text
from bespoke.errors import DataError, kind_of

__all__ = ["json_rows"]

_ONE_A_LINE = "Write one object on each line"
_LISTS = ("messages", "conversations", "tokens", "mask")  # keys that hold a list in one row


def json_rows(
    path: Path, encoding: str | None = None, other_keys: Counter[str] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number, row). The number is the line if the file has one object a line, else the place of the row.

    `other_keys` counts the keys that stand next to a list of rows and are not used.
    """
    lines = ((number, line) for number, line in text_lines(path, encoding) if line.strip())
    next_step = _next_step(path)
    first, second = next(lines, None), next(lines, None)
    if first is None:
        return

    if second is None:
        yield from _rows(parsed(first[1], f"{path}, row {first[0]}", next_step), path, first[0], other_keys)
    elif is_json(first[1]):
        for number, line in chain([first, second], lines):
            where = f"{path}, row {number}"
            yield number, _row(parsed(line, where, _ONE_A_LINE), where, _ONE_A_LINE)
    else:
        try:
            values = documents(path, whole_text(path, encoding), next_step)
        except DataError:
            if first[1].lstrip().startswith("{") and is_json(second[1]):
                # The file has one object a line, and the first is broken: this raises the error that names its line.
                parsed(first[1], f"{path}, row {first[0]}", next_step)
            raise
        if len(values) == 1:
            place, value = values[0]
            yield from _rows(value, path, place, other_keys)
            return
        for number, value in values:
            yield number, _row(value, f"{path}, row {number}", next_step)


def _next_step(path: Path) -> str:
    return "Write an array of objects, or one object on each line" if path.suffix.lower() == ".json" else _ONE_A_LINE


# ---- documents -------------------------------------------------------------------------------------------------------------


def _rows(
    document: Any, path: Path, line: int, other_keys: Counter[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (place from 1, row). A document that is itself one row is numbered by its line."""
    export = export_of(document)
    if export is not None:
        refuse_export(path, export)
    rows = [document] if _is_messages(document) else _listed(document, path, other_keys)
    is_one_row = len(rows) == 1 and rows[0] is document
    for number, row in enumerate(rows, start=line if is_one_row else 1):
        yield number, _row(row, f"{path}, row {number}", _next_step(path))


def _listed(document: Any, path: Path, other_keys: Counter[str] | None, depth: int = 0) -> list[Any]:
    """The rows of a document: the document itself, its columns, or the list under one of its keys."""
    if isinstance(document, list):
        return document
    if not isinstance(document, Mapping) or not document:
        return [document]
    if any(_in_one_row(key, value) for key, value in document.items()):
        return [document]
    columns = _columns(document)
    if columns is not None:
        return columns

    lists = [key for key, value in document.items() if _is_rows(value)]
    if not lists and depth == 0:
        groups = [(key, value) for key, value in document.items() if isinstance(value, Mapping)]
        lists = [key for key, value in groups if any(map(_is_rows, value.values()))]
    if len(lists) > 1:
        raise DataError(
            str(path),
            got=f"several lists of rows: {', '.join(map(repr, lists[:12]))}",
            expected="one list of rows",
            next_step="Write the list to use into a file of its own",
        )
    if not lists:
        return [document]
    if other_keys is not None:
        other_keys.update(key for key in document if key != lists[0])
    return _listed(document[lists[0]], path, other_keys, depth + 1)


def _in_one_row(key: str, value: Any) -> bool:
    """Whether a key holds a list that belongs to one row, such as its messages."""
    return key in _LISTS and isinstance(value, list) and not any(isinstance(member, list) for member in value)


def _is_rows(value: Any) -> bool:
    """Whether a value is a list of rows. The messages of one conversation are part of a row."""
    if not isinstance(value, list) or not value or _have(value, "role", "content") or _have(value, "from", "value"):
        return False
    return all(isinstance(member, Mapping | list) for member in value)


def _columns(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Rows from columns of equal length, None if the document has none.

    A column is a list, or an object from row names to values as pandas writes it.
    """
    values = list(document.values())
    if all(isinstance(value, Mapping) for value in values):
        if any(value.keys() != values[0].keys() for value in values):
            return None
        values = [list(value.values()) for value in values]
    elif len(values) == 1 and _is_rows(values[0]) and next(iter(document)) not in _LISTS:
        return None  # {"data": [rows]}, where each is a list of messages
    if not all(isinstance(value, list) and len(value) == len(values[0]) for value in values):
        return None
    if any(isinstance(cell, Mapping) for column in values for cell in column):
        return None  # {"train": [rows], "test": [rows]}
    return [dict(zip(document, row, strict=True)) for row in zip(*values, strict=True)]


def _is_messages(value: Any) -> bool:
    """Whether a value is the messages of one conversation."""
    return isinstance(value, list) and bool(value) and _have(value, "role", "content")


def _have(values: list[Any], *keys: str) -> bool:
    return all(isinstance(value, Mapping) and all(key in value for key in keys) for value in values)


def _row(value: Any, where: str, next_step: str) -> dict[str, Any]:
    if _is_messages(value):
        return {"messages": value}
    if not isinstance(value, dict):
        raise DataError(where, got=kind_of(value), expected="one JSON object", next_step=next_step)
    return value
