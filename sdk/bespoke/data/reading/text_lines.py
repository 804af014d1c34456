# SPDX-License-Identifier: Apache-2.0
"""Bounded reading of text files, whole or line by line.

A file is UTF-8, UTF-16 if it begins with a byte order mark, or in the encoding that the caller names. Lines end with a line feed,
a carriage return or both. They keep these ends because a cell of CSV may hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from bespoke.errors import ConfigError, DataError, shown
from bespoke.format.plain_file import open_plain
from bespoke.remedies import setting

__all__ = ["checked_encoding", "text_lines", "whole_text"]

# Most bytes of a file or line that is read at once. An export of years of chats has a few hundred million on one line.
MOST_BYTES = 2**29
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def checked_encoding(encoding: str | None) -> str | None:
    """Returns `encoding` if Python can encode text by it. None stands for UTF-8 or UTF-16. ConfigError otherwise."""
    if encoding is None:
        return None
    try:
        b"".decode(encoding)
        "".encode(encoding)
    except (LookupError, TypeError, ValueError, UnicodeError):
        raise ConfigError(
            setting("encoding"),
            got=shown(encoding),
            expected="the name of a text encoding, such as cp1252",
            next_step="Change " + setting("encoding"),
        ) from None
    return encoding


def text_lines(path: Path, encoding: str | None = None, most: int | None = None) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, line with its end).

    DataError, with the number, for a line that cannot be read. DataError also for a file of more than `most` characters.
    """
    size = 0
    try:
        with open_plain(path) as file:
            start = file.read(2)
            file.seek(0)
            named = "utf-16" if encoding is None and start in _UTF_16 else encoding
            lines = _utf8_lines(path, file) if named is None else _LINE.findall(_decoded(path, file, named))
            for number, line in enumerate(lines, start=1):
                if "\0" in line:
                    _refuse(
                        f"{path}, row {number}",
                        "a NUL byte",
                        "text",
                        "Remove it; of UTF-16 without a byte order mark name the encoding: encoding='utf-16-le'",
                    )
                size += len(line)
                if most is not None and size > most:
                    _too_long(str(path))
                yield number, line
    except OSError as error:
        _refuse(str(path), error.strerror or str(error), "a readable file", "Check the path")


def whole_text(path: Path, encoding: str | None = None) -> str:
    """The text of a file. DataError if it cannot be read or is too long."""
    return "".join(line for _, line in text_lines(path, encoding, MOST_BYTES))


def _utf8_lines(path: Path, file: BinaryIO) -> Iterator[str]:
    number = 0
    while line := file.readline(MOST_BYTES + 1):
        where = f"{path}, row {number + 1}"
        if len(line) > MOST_BYTES:
            _refuse(where, f"a line of more than {MOST_BYTES} bytes", "shorter lines", "Write one example on each line")
        try:
            text = line.decode("utf-8" if number else "utf-8-sig")
        except UnicodeDecodeError as error:
            _refuse(
                where,
                f"bytes that are not UTF-8 ({error.reason} at byte {error.start} of the line)",
                "UTF-8 text",
                "Convert the file, for instance with iconv -t UTF-8, or name its encoding: "
                + setting("encoding", "cp1252"),
            )
        parts = _LINE.findall(text) if "\r" in text else (text,)
        number += len(parts)
        yield from parts


def _decoded(path: Path, file: BinaryIO, encoding: str) -> str:
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        _too_long(str(path))
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        row = data[:start].decode(encoding, "ignore").count("\n") + 1
        _refuse(
            f"{path}, row {row}",
            f"bytes that are not {encoding} (at byte {start} of the file)",
            f"text in {encoding}",
            "Name the encoding that the file has, or convert it to UTF-8",
        )


def _too_long(where: str) -> NoReturn:
    _refuse(
        where, f"more than {MOST_BYTES} bytes to read as one", "less", "Split the file, or write the examples as JSONL"
    )


def _refuse(where: str, got: str, expected: str, next_step: str) -> NoReturn:
    raise DataError(where, got=got, expected=expected, next_step=next_step)
