# SPDX-License-Identifier: Apache-2.0
"""Examples out of files: JSONL (one object a line), .json (an array of objects, or lines as in JSONL), CSV (a header, then rows)
or .txt (the whole file is one text).

All rows of a file have one shape: the one that is named, else that of the first row. Errors carry file and row: the line in JSONL,
the place in an array, the row as a spreadsheet counts it in CSV, where the header is row 1. Keys that the shape does not use are
counted, not refused.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from bespoke import arguments
from bespoke.data.shapes import FIELDS, OPTIONAL_FIELDS, Format, shape_of
from bespoke.errors import ConfigError, DataError, kind_of
from bespoke.format.plain_file import open_plain

__all__ = ["ReadReport", "checked_fields", "mapped", "read_examples", "read_rows"]

_ONE_A_LINE = "Write one object on each line"
_ARRAY = "Write an array of objects, or one object on each line"


@dataclass
class ReadReport:
    """Filled while a file is read: its shape, rows so far, and how many rows had a key that is not used."""

    format: Format | None = None
    rows: int = 0
    unknown_keys: Counter[str] = field(default_factory=Counter)


def read_examples(
    path: str | Path,
    format: Format | None = None,
    fields: Mapping[str, str] | None = None,
    report: ReadReport | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number, example) for each row of `path`; blank lines are passed over.

    `format` names the shape; None tells it from the first row. `fields` says which column or key holds what, for
    instance {"prompt": "question", "completion": "answer"}; a mapped value that is not text is written as JSON (a
    function call as completion). ConfigError for settings that cannot be; DataError for a row that cannot be read.
    """
    report = report if report is not None else ReadReport()
    known = dict.fromkeys(name for shape in FIELDS for name in (*FIELDS[shape], *OPTIONAL_FIELDS[shape]))
    mapping = checked_fields(tuple(known), fields or {}, format)
    report.format = format
    for number, row in read_rows(path):
        where = f"{path}, row {number}"
        example, used = mapped(row, mapping, where)
        if report.format is None:
            report.format = shape_of(example, where)
        wanted = FIELDS[report.format]
        missing = [name for name in wanted if name not in example]
        if missing:
            raise DataError(
                where,
                got=f"the keys {', '.join(map(repr, row)) or 'none'}, without {' and '.join(map(repr, missing))}",
                expected=f"{' and '.join(map(repr, wanted))}, as in the rows before"
                if report.rows
                else f"{' and '.join(map(repr, wanted))}",
                next_step="Give every row the same keys, or name the shape with format= and the keys with fields=",
            )
        kept = {name: example[name] for name in (*wanted, *OPTIONAL_FIELDS[report.format]) if name in example}
        report.rows += 1
        report.unknown_keys.update(key for key in row if key not in used and key not in kept)
        yield number, kept


def read_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number, row as it stands) for each row of `path`. DataError for a file or a row that cannot be read."""
    path = arguments.path("the file of examples", path, "a path, as text or Path")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            str(path),
            got=f"a file ending in '{path.suffix}'" if path.suffix else "a file without an ending",
            expected=f"one of {', '.join(sorted(_READERS))}",
            next_step="Write the examples as JSONL, one object per line",
        )
    yield from reader(path)


def checked_fields(known: Sequence[str], fields: Mapping[str, str], format: Format | None = None) -> Mapping[str, str]:
    """`fields`, where each is a name that is known with that of a column; ConfigError names those that are not."""
    problems = []
    if format is not None and format not in FIELDS:
        problems.append(
            ConfigError("format", got=repr(format), expected=f"one of {', '.join(FIELDS)}", next_step="Change format")
        )
    for name, column in fields.items():
        if name not in known or not isinstance(column, str):
            problems.append(
                ConfigError(
                    f"fields[{name!r}]",
                    got=repr(column),
                    expected=f"one of {', '.join(known)}, and the name of a column",
                    next_step="Write fields as {what it is: the column that holds it}",
                )
            )
    if problems:
        raise ConfigError.from_problems(problems)
    return fields


def mapped(row: dict[str, Any], mapping: Mapping[str, str], where: str) -> tuple[dict[str, Any], set[str]]:
    """The row under the names of its shape, and the columns that the mapping used."""
    example = {key: value for key, value in row.items() if key not in mapping.values()}
    for name, column in mapping.items():
        if column not in row:
            raise DataError(
                where,
                got=f"the keys {', '.join(map(repr, row)) or 'none'}",
                expected=f"{column!r}, which fields names for {name!r}",
                next_step="Correct fields, or give every row this key",
            )
        value = row[column]
        if name in ("prompt", "completion", "text") and not isinstance(value, str):
            value = "" if value is None else json.dumps(value, ensure_ascii=False)
        example[name] = value
    return example, set(mapping.values())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines by number from 1, read one by one; a byte order mark is passed over."""
    try:
        with open_plain(path) as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"{path}, row {number}",
                        got=f"bytes that are not UTF-8 ({error.reason} at byte {error.start} of the line)",
                        expected="UTF-8 text",
                        next_step="Convert the file, for instance with iconv -t UTF-8",
                    ) from None
    except OSError as error:
        _unreadable(path, error)


def _jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path):
        if line.strip():
            where = f"{path}, row {number}"
            yield number, _object(_parsed(line, where, _ONE_A_LINE), where, _ONE_A_LINE)


def _json(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not next((line for _, line in _lines(path) if line.strip()), "").lstrip().startswith("["):
        yield from _jsonl(path)
        return
    rows = _parsed("".join(line for _, line in _lines(path)), str(path), _ARRAY)
    for number, row in enumerate(rows, start=1):
        yield number, _object(row, f"{path}, row {number}", _ARRAY)


def _parsed(text: str, where: str, next_step: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        got = f"no JSON: {error}"
    except RecursionError:
        got = "JSON nested too deeply"
    raise DataError(where, got=got, expected="one JSON object", next_step=next_step)


def _object(row: Any, where: str, next_step: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(where, got=kind_of(row), expected="one JSON object", next_step=next_step)
    return row


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    header: list[str] | None = None
    number = 0
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    while True:
        number += 1
        where = f"{path}, row {number}"
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                where, got=f"no CSV: {error}", expected="a row", next_step="Fix the quotes, or write the rows as JSONL"
            ) from None
        if not values:
            continue
        if header is None:
            header = values
            repeated = [name for name, count in Counter(header).items() if count > 1]
            if repeated:
                raise DataError(
                    where, got=f"the column {repeated[0]!r} twice", expected="different names", next_step="Rename one"
                )
            continue
        if len(values) != len(header):
            raise DataError(
                where,
                got=f"{len(values)} values",
                expected=f"{len(header)}, one for each of {', '.join(header)}",
                next_step="Put values with commas into double quotes",
            )
        yield number, dict(zip(header, values, strict=True))


def _txt(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    yield 1, {"text": "".join(line for _, line in _lines(path))}


def _unreadable(path: Path, error: OSError) -> NoReturn:
    raise DataError(
        str(path), got=error.strerror or str(error), expected="a readable file", next_step="Check the path"
    ) from None


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, dict[str, Any]]]]] = {
    ".json": _json,
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".txt": _txt,
}
