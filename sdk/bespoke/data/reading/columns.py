# SPDX-License-Identifier: Apache-2.0
"""The setting `fields`: which column of a row holds the prompt, the completion and so on. It may also join columns.

    {"prompt": "question"}                        the column 'question'
    {"prompt": "{instruction}\n\n{input}"}        two columns; {{ and }} are braces

An empty column is left out together with the white space before it. At the beginning of a template, the white space behind it
goes instead. A name with braces is a column if the row has a column of that name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bespoke.errors import ConfigError, DataError
from bespoke.remedies import Like, setting

__all__ = ["checked_fields", "column_of", "mapped"]

_PART = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


def checked_fields(known: Sequence[str], fields: Mapping[str, str]) -> Mapping[str, str]:
    """Returns `fields`, checked: every key is one of `known` and every value is text. ConfigError names the others."""
    problems = [
        ConfigError(
            setting("fields", key=name),
            got=repr(column),
            expected=f"one of {', '.join(known)}, and the name of a column",
            next_step="Write " + setting("fields", Like("{what it is: the column that holds it}", "NAME=COLUMN")),
        )
        for name, column in fields.items()
        if name not in known or not isinstance(column, str)
    ]
    if problems:
        raise ConfigError.from_problems(problems)
    return fields


def mapped(row: Mapping[str, Any], fields: Mapping[str, str], where: str) -> tuple[dict[str, Any], set[str]]:
    """The row with its columns renamed by `fields`, and the columns that `fields` used."""
    values: dict[str, Any] = {}
    used: set[str] = set()
    for name, column in fields.items():
        columns = [column] if column in row else _columns(column) or [column]
        for key in columns:
            if key not in row:
                raise DataError(
                    where,
                    got=f"the keys {', '.join(map(repr, row)) or 'none'}",
                    expected=f"{key!r}, which " + setting("fields") + f" names for {name!r}",
                    next_step="Correct " + setting("fields") + ", or give every row this key",
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
    """The name that the file has for the field `name`."""
    return fields.get(name, name)


def _columns(template: str) -> list[str]:
    return _parts(template)[1]


def _parts(template: str) -> tuple[list[str], list[str]]:
    """The texts of a template and the columns between them: there is one text more than there are columns."""
    texts, columns, end = [""], [], 0
    for match in _PART.finditer(template):
        texts[-1] += template[end : match.start()]
        end = match.end()
        if match[1] is None:  # {{ or }}: a brace
            texts[-1] += match[0][0]
        else:
            columns.append(match[1])
            texts.append("")
    texts[-1] += template[end:]
    return texts, columns


def _joined(template: str, row: Mapping[str, Any]) -> str:
    """The template with the row's values, without empty columns and the white space that belongs to them."""
    texts, columns = _parts(template)
    joined, between = "", texts[0]
    for column, behind in zip(columns, texts[1:], strict=True):
        value = _text(row[column])
        if value.strip():
            joined, between = joined + between + value, behind
        else:
            between = between.rstrip()
            between += behind if joined or between else behind.lstrip()
    return joined + between


def _text(value: Any) -> str:
    """A value as text. A value that is not text, such as a function call, is written as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
