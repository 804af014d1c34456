# SPDX-License-Identifier: Apache-2.0
"""Rows of CSV: a header, then values between commas, semicolons or tabs, whichever the header has most of outside quotes.

Spreadsheets choose the separator by the country. Excel's own first line `sep=;` is taken at its word.
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
_limit = Lock()  # of Python's csv: one number for the whole process, of 131,072 characters


def csv_rows(path: Path, encoding: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, row), where the header is row 1, as a spreadsheet counts."""
    return _rows(path, encoding, None)


def tsv_rows(path: Path, encoding: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same between tabs, without a look at the header."""
    return _rows(path, encoding, "\t")


def _rows(path: Path, encoding: str | None, separator: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = (line for _, line in text_lines(path, encoding))
    begin: list[str] = []
    for line in lines:
        begin.append(line)
        if "".join(begin).strip() and ("".join(begin).count('"') % 2 == 0 or len(begin) == _MOST_HEADER_LINES):
            break
    number = 0
    said = re.fullmatch(r"sep=([,;\t|])\s*", "".join(begin))
    if said is not None:
        separator, begin, number = said[1], [], 1
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
    """Of several that are as frequent the first, a comma."""
    counts = Counter(_QUOTED.sub("", header))
    return max(_SEPARATORS, key=lambda separator: counts[separator])


def _next(reader: Iterator[list[str]]) -> list[str]:
    """One row, whose cells may be as long as a line."""
    with _limit:
        before = csv.field_size_limit(MOST_BYTES)
        try:
            return next(reader)
        finally:
            csv.field_size_limit(before)


def _refuse(where: str, got: str, expected: str, next_step: str) -> NoReturn:
    raise DataError(where, got=got, expected=expected, next_step=next_step)
