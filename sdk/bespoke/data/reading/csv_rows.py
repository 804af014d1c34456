# SPDX-License-Identifier: Apache-2.0
"""Reader for CSV: a header, then rows of values.

Spreadsheets choose the separator by country, so it is the most frequent one of commas, semicolons and tabs in the header, outside
quotes. Excel's own first line `sep=;` names the separator and is obeyed.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

from bespoke.data.reading.text_lines import MOST_BYTES, text_lines
from bespoke.errors import DataError

__all__ = ["csv_rows", "tsv_rows"]

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_QUOTED = re.compile(r'"(?:[^"]|"")*"?')
_MOST_HEADER_LINES = 64  # a column's name may hold line ends, in quotes
_limit = Lock()  # guards csv.field_size_limit: one number for the whole process, 131,072 characters by default


def csv_rows(path: Path, encoding: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number, row). The header is row 1, as in a spreadsheet."""
    return _rows(path, encoding, None)


def tsv_rows(path: Path, encoding: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the rows of a table whose separator is always the tab."""
    return _rows(path, encoding, "\t")


def _rows(path: Path, encoding: str | None, separator: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = (line for _, line in text_lines(path, encoding))
    begin: list[str] = []
    for line in lines:
        begin.append(line)
        if "".join(begin).strip() and ("".join(begin).count('"') % 2 == 0 or len(begin) == _MOST_HEADER_LINES):
            break

    number = 0
    named_separator = re.fullmatch(r"sep=([,;\t|])\s*", "".join(begin))
    if named_separator is not None:
        separator, begin, number = named_separator[1], [], 1
    separator = separator or _most_frequent("".join(begin))

    reader = csv.reader(chain(begin, lines), delimiter=separator, strict=True)
    header: list[str] | None = None
    while True:
        number += 1
        where = f"{path}, row {number}"
        try:
            values = _next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            _refuse(where, f"no CSV: {error}", "a row", "Fix the quotes, or write the rows as JSONL")
        if not values:
            continue

        if header is None:
            header = values
            repeated = [name for name, count in Counter(header).items() if count > 1]
            if repeated:
                _refuse(where, f"the column {repeated[0]!r} twice", "different names", "Rename one")
            continue

        if len(values) != len(header):
            _refuse(
                where,
                f"{len(values)} values",
                f"{len(header)}, one for each of {', '.join(header)}",
                f"Put values with {_SEPARATORS.get(separator, 'separators')} into double quotes",
            )
        yield number, dict(zip(header, values, strict=True))


def _most_frequent(header: str) -> str:
    """The most frequent separator of a header. Of equally frequent ones it is the first, with the comma before all."""
    counts = Counter(_QUOTED.sub("", header))
    return max(_SEPARATORS, key=lambda separator: counts[separator])


def _next(reader: Iterator[list[str]]) -> list[str]:
    """Reads one row. A cell may be as long as a line."""
    with _limit:
        before = csv.field_size_limit(MOST_BYTES)
        try:
            return next(reader)
        finally:
            csv.field_size_limit(before)


def _refuse(where: str, got: str, expected: str, next_step: str) -> NoReturn:
    raise DataError(where, got=got, expected=expected, next_step=next_step)
