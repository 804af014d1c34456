# SPDX-License-Identifier: Apache-2.0
"""Rows of JSON, however it is laid out: one object a line, or a document on one line or many.

A document is an array of rows, one row, a list of rows under one key ({"train": [...]}, {"data": {"rows": [...]}}), columns
({"prompt": [...], "completion": [...]}), or several objects behind each other. A row that is a list of messages is a conversation.
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
    """(number, row): its line where there is one object a line, else its place. `other_keys` counts those next to a list of
    rows."""
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
            found = documents(path, whole_text(path, encoding), next_step)
        except DataError:
            if first[1].lstrip().startswith("{") and is_json(second[1]):
                parsed(
                    first[1], f"{path}, row {first[0]}", next_step
                )  # one object a line, of which the first is broken
            raise
        if len(found) == 1:
            yield from _rows(found[0][1], path, found[0][0], other_keys)
            return
        for number, value in found:
            yield number, _row(value, f"{path}, row {number}", next_step)


def _next_step(path: Path) -> str:
    return "Write an array of objects, or one object on each line" if path.suffix.lower() == ".json" else _ONE_A_LINE


# ---- documents -------------------------------------------------------------------------------------------------------------


def _rows(
    document: Any, path: Path, line: int, other_keys: Counter[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(place from 1, row); of a document that is itself a row, the line."""
    export = export_of(document)
    if export is not None:
        refuse_export(path, export)
    rows = [document] if _is_messages(document) else _listed(document, path, other_keys)
    for number, row in enumerate(rows, start=line if len(rows) == 1 and rows[0] is document else 1):
        yield number, _row(row, f"{path}, row {number}", _next_step(path))


def _listed(document: Any, path: Path, other_keys: Counter[str] | None, depth: int = 0) -> list[Any]:
    """The rows of a document: its own, or those under one of its keys."""
    if isinstance(document, list):
        return document
    if (
        not isinstance(document, Mapping)
        or not document
        or any(_in_one_row(key, value) for key, value in document.items())
    ):
        return [document]
    columns = _columns(document)
    if columns is not None:
        return columns
    lists = [key for key, value in document.items() if _of_rows(value)]
    if not lists and depth == 0:
        lists = [
            key for key, value in document.items() if isinstance(value, Mapping) and any(map(_of_rows, value.values()))
        ]
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
    return key in _LISTS and isinstance(value, list) and not any(isinstance(one, list) for one in value)


def _of_rows(value: Any) -> bool:
    """Whether it is a list of rows; the messages of one conversation are part of a row."""
    if not isinstance(value, list) or not value or _have(value, "role", "content") or _have(value, "from", "value"):
        return False
    return all(isinstance(one, Mapping | list) for one in value)


def _columns(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Rows out of columns of one length: lists, or objects from row names to values as pandas writes them."""
    values = list(document.values())
    if all(isinstance(value, Mapping) for value in values):
        if any(value.keys() != values[0].keys() for value in values):
            return None
        values = [list(value.values()) for value in values]
    elif len(values) == 1 and _of_rows(values[0]) and next(iter(document)) not in _LISTS:
        return None  # {"data": [rows]}, where each is a list of messages
    if not all(isinstance(value, list) and len(value) == len(values[0]) for value in values):
        return None
    if any(isinstance(one, Mapping) for value in values for one in value):
        return None  # {"train": [rows], "test": [rows]}
    return [dict(zip(document, row, strict=True)) for row in zip(*values, strict=True)]


def _is_messages(value: Any) -> bool:
    """Whether it is one conversation."""
    return isinstance(value, list) and bool(value) and _have(value, "role", "content")


def _have(values: list[Any], *keys: str) -> bool:
    return all(isinstance(one, Mapping) and all(key in one for key in keys) for one in values)


def _row(value: Any, where: str, next_step: str) -> dict[str, Any]:
    if _is_messages(value):
        return {"messages": value}
    if not isinstance(value, dict):
        raise DataError(where, got=kind_of(value), expected="one JSON object", next_step=next_step)
    return value
