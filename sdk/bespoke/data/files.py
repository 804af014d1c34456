# SPDX-License-Identifier: Apache-2.0
"""Reads examples from files.

JSON is one object a line or a document. CSV and TSV have a header and then rows. A .txt or .md file is one text. conversations.json
of ChatGPT and Claude is read if `format` says so.

All rows of a file have one shape: the one that `format` names, else that of the first row. Errors carry the file and the row. That
is the line in JSONL, the place in an array, and in CSV the row as a spreadsheet counts it, where the header is row 1. Keys and
columns that are not used, rows without an answer and repeats are counted in a ReadReport. None of them is an error.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from bespoke import arguments
from bespoke.data.reading.answers import without_answer
from bespoke.data.reading.columns import checked_fields, mapped
from bespoke.data.reading.csv_rows import csv_rows, tsv_rows
from bespoke.data.reading.exports.kinds import EXPORTS, WITH_ROLES, WithRoles, export_text, read_export, refuse_export
from bespoke.data.reading.json_rows import json_rows
from bespoke.data.reading.known_rows import KEYS_OF_KNOWN, KNOWN_ROWS, KnownRows, example_of, known_rows_of
from bespoke.data.reading.report import ReadReport
from bespoke.data.reading.text_lines import checked_encoding, whole_text
from bespoke.data.shapes import FIELDS, OPTIONAL_FIELDS, Format, refuse_chat_table, shape_of, shapes_of
from bespoke.errors import ConfigError, DataError, shown
from bespoke.remedies import setting

__all__ = ["FILE_FORMATS", "FileFormat", "ReadReport", "checked_fields", "mapped", "read_examples", "read_rows"]

FileFormat = Format | KnownRows | WithRoles
FILE_FORMATS: tuple[str, ...] = (*get_args(Format), *KNOWN_ROWS, *WITH_ROLES)
_SHAPE_OF_KNOWN: dict[KnownRows, Format] = {"sharegpt": "messages", "alpaca": "prompt_completion"}


def read_examples(
    path: str | Path,
    format: FileFormat | None = None,
    fields: Mapping[str, str] | None = None,
    report: ReadReport | None = None,
    encoding: str | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (row number, example) for each row of a file that has an answer. Blank lines are skipped.

    Args:
        path: the file; its ending says how it is laid out.
        format: the shape of the rows. By default the keys of the first row decide.
        fields: which column or key holds what, for instance {"prompt": "question", "completion": "answer"}. A template joins
            several: {"prompt": "{title}: {body}"}. A mapped value that is not text, such as a function call, is written as JSON.
        report: gets the counts of what was not used.
        encoding: the encoding of the file, such as cp1252. By default it is UTF-8, or UTF-16 if it begins with a byte order mark.

    Raises:
        ConfigError: for settings that do not fit each other or the file.
        DataError: for a row that cannot be read, and if no row has an answer.
    """
    report = report if report is not None else ReadReport()
    fields = fields or {}
    _check_format(format, path)
    if format in WITH_ROLES:
        if fields:
            raise ConfigError(
                setting("fields"),
                got=shown(dict(fields)),
                expected=f"none: an export of {format} has no columns",
                next_step="Leave it out",
            )
        yield from _export_examples(path, format, report, encoding)
        return

    checked_fields(_fields_of(format), fields)
    seen: set[bytes] = set()
    for number, row in read_rows(path, encoding, report):
        where = f"{path}, row {number}"
        if format is None and not fields:
            _refuse_chats(Path(path), row)

        example, used = mapped(row, fields, where)
        if format is None:
            format = _shape_of(example, where)
        if format in KNOWN_ROWS:
            example, more = example_of(format, example, where)
            used |= more
        report.format = _SHAPE_OF_KNOWN.get(format, format)  # type: ignore[arg-type]

        kept = _kept(example, report.format, row, report.rows == 0, where)
        report.rows += 1
        report.unknown_keys.update(key for key in row if key not in used and (key not in kept or key in fields))

        reason = without_answer(kept, fields, row)
        if reason is not None:
            report.dropped[reason] += 1
            continue
        report.repeated_rows += _is_repeat(kept, seen)
        yield number, kept

    if report.dropped and report.rows == sum(report.dropped.values()):
        raise DataError(
            str(path),
            got=f"{report.rows} rows without an answer ({next(iter(report.dropped))})",
            expected="at least one row with an answer",
            next_step="Check which column or key holds the answers, or fill it in",
        )


def read_rows(
    path: str | Path, encoding: str | None = None, report: ReadReport | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (row number, row), unchanged, for each row of a file. DataError for a file or row that cannot be read."""
    path = arguments.path("the file of examples", path, "a path, as text or Path")
    encoding = checked_encoding(encoding)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            str(path),
            got=f"a file ending in '{path.suffix}'" if path.suffix else "a file without an ending",
            expected=f"one of {', '.join(sorted(_READERS))}",
            next_step="Write the examples as JSONL, one object per line",
        )
    yield from reader(path, encoding, None if report is None else report.unknown_keys)


def _check_format(format: str | None, path: str | Path) -> None:
    if format is None or format in FILE_FORMATS:
        return
    next_step: str = "Change " + setting("format")
    if format in EXPORTS:
        next_step = (
            f"Make examples of it first: bespoke read {Path(path).name} --as {format} --me NAME --out examples.jsonl"
        )
    raise ConfigError(
        setting("format"), got=repr(format), expected=f"one of {', '.join(FILE_FORMATS)}", next_step=next_step
    )


def _refuse_chats(path: Path, row: Mapping[str, Any]) -> None:
    """Raises DataError for a chat without a format that names it: an exported text, or a table of messages."""
    export = export_text(row["text"]) if _READERS.get(path.suffix.lower()) is _text else None
    if export is not None:
        refuse_export(path, export)
    refuse_chat_table(row, str(path))


def _fields_of(format: FileFormat | None) -> tuple[str, ...]:
    """The keys that `fields` may have."""
    if format in KNOWN_ROWS:
        return KEYS_OF_KNOWN[format]
    return tuple(dict.fromkeys(name for shape in FIELDS for name in (*FIELDS[shape], *OPTIONAL_FIELDS[shape])))


def _shape_of(example: Mapping[str, Any], where: str) -> FileFormat:
    known, own = known_rows_of(example), shapes_of(example)
    if len(known) == 1 and not own:
        return known[0]
    if known and own:
        raise DataError(
            where,
            got=f"keys of several shapes ({' and '.join((*own, *known))})",
            expected="one of them",
            next_step="Name the one to use with " + setting("format") + ", or remove the others",
        )
    return shape_of(example, where)


def _kept(example: Mapping[str, Any], shape: Format, row: Mapping[str, Any], first: bool, where: str) -> dict[str, Any]:
    """The fields of an example that its shape uses. DataError, naming the keys of its row, if one is missing."""
    wanted = FIELDS[shape]
    missing = [name for name in wanted if name not in example]
    if missing:
        raise DataError(
            where,
            got=f"the keys {', '.join(map(repr, row)) or 'none'}, without {' and '.join(map(repr, missing))}",
            expected=f"{' and '.join(map(repr, wanted))}{'' if first else ', as in the rows before'}",
            next_step="Give every row the same keys, or name the shape with "
            + setting("format")
            + " and the keys with "
            + setting("fields"),
        )
    return {name: example[name] for name in (*wanted, *OPTIONAL_FIELDS[shape]) if name in example}


def _is_repeat(example: Mapping[str, Any], seen: set[bytes]) -> bool:
    """Whether an equal example is in `seen`, which holds hashes. A new example is added to it."""
    try:
        text = json.dumps(example, sort_keys=True)
    except RecursionError:
        return False  # too deeply nested, which a later check refuses
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    if digest in seen:
        return True
    seen.add(digest)
    return False


def _export_examples(
    path: str | Path, kind: WithRoles, report: ReadReport, encoding: str | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    path = arguments.path("the file of examples", path, "a path, as text or Path")
    report.format = "messages"
    seen: set[bytes] = set()
    for number, example in read_export(path, kind, None, report.left_out, encoding):
        report.rows += 1
        report.repeated_rows += _is_repeat(example, seen)
        yield number, example


def _text(path: Path, encoding: str | None, _: Counter[str] | None) -> Iterator[tuple[int, dict[str, Any]]]:
    text = whole_text(path, encoding)
    if not text.strip():
        raise DataError(
            str(path), got="an empty file", expected="a text", next_step="Check the path, or write the text into it"
        )
    yield 1, {"text": text}


_Reader = Callable[[Path, str | None, "Counter[str] | None"], Iterator[tuple[int, dict[str, Any]]]]
_READERS: dict[str, _Reader] = {
    ".json": json_rows,
    ".jsonl": json_rows,
    ".ndjson": json_rows,
    ".csv": lambda path, encoding, _: csv_rows(path, encoding),
    ".tsv": lambda path, encoding, _: tsv_rows(path, encoding),
    ".txt": _text,
    ".md": _text,
}
