# SPDX-License-Identifier: Apache-2.0
"""`fields`: which column of a row holds what, or which columns joined do.

    {"prompt": "question"}                        the column 'question'
    {"prompt": "{instruction}\n\n{input}"}        two columns; {{ and }} are braces

A column without words takes the white space in front of it with it, at the beginning the white space behind it. A column that is
itself named like a template stays a column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bespoke.errors import ConfigError, DataError

__all__ = ["checked_fields", "column_of", "mapped"]

_PART = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


def checked_fields(known: Sequence[str], fields: Mapping[str, str]) -> Mapping[str, str]:
    """`fields`, where each is a name that is known with that of a column; ConfigError names those that are not."""
    problems = [
        ConfigError(
            f"fields[{name!r}]",
            got=repr(column),
            expected=f"one of {', '.join(known)}, and the name of a column",
            next_step="Write fields as {what it is: the column that holds it}",
        )
        for name, column in fields.items()
        if name not in known or not isinstance(column, str)
    ]
    if problems:
        raise ConfigError.from_problems(problems)
    return fields


def mapped(row: Mapping[str, Any], fields: Mapping[str, str], where: str) -> tuple[dict[str, Any], set[str]]:
    """The row under the names of its shape, and the columns that were used for it."""
    values: dict[str, Any] = {}
    used: set[str] = set()
    for name, column in fields.items():
        columns = [column] if column in row else _columns(column) or [column]
        for one in columns:
            if one not in row:
                raise DataError(
                    where,
                    got=f"the keys {', '.join(map(repr, row)) or 'none'}",
                    expected=f"{one!r}, which fields names for {name!r}",
                    next_step="Correct fields, or give every row this key",
                )
        used.update(columns)
        if column not in row:
            values[name] = _joined(column, row)
        elif name in ("prompt", "completion", "text"):
            values[name] = _text(row[column])
        else:
            values[name] = row[column]
    return {key: value for key, value in row.items() if key not in used} | values, used


def column_of(name: str, fields: Mapping[str, str]) -> str:
    """What the file calls it."""
    return fields.get(name, name)


def _columns(template: str) -> list[str]:
    return _parts(template)[1]


def _parts(template: str) -> tuple[list[str], list[str]]:
    """(texts, columns): a column stands between each two texts."""
    texts, columns, end = [""], [], 0
    for found in _PART.finditer(template):
        texts[-1] += template[end : found.start()]
        end = found.end()
        if found[1] is None:
            texts[-1] += found[0][0]
        else:
            columns.append(found[1])
            texts.append("")
    texts[-1] += template[end:]
    return texts, columns


def _joined(template: str, row: Mapping[str, Any]) -> str:
    texts, columns = _parts(template)
    done, between = "", texts[0]
    for column, behind in zip(columns, texts[1:], strict=True):
        value = _text(row[column])
        if value.strip():
            done, between = done + between + value, behind
        else:
            between = between.rstrip()
            between += behind if done or between else behind.lstrip()
    return done + between


def _text(value: Any) -> str:
    """A value as text; what is none is written as JSON, such as a function call."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
