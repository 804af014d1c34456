# SPDX-License-Identifier: Apache-2.0
"""Options for the rows of a file, and the lines that report unused rows, for several commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import click

from bespoke.cli.output import Command, pairs
from bespoke.errors import shown

__all__ = ["ROW_FORMAT", "encoding_option", "field_option", "given_fields", "unknown_lines", "unused_lines"]

ROW_FORMATS = ("messages", "prompt_completion", "text", "sharegpt", "alpaca", "chatgpt", "claude")
NEED_A_NAME = ("whatsapp", "telegram")
_MOST_KEYS = 12
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


class _RowFormat(click.Choice):
    """The shapes of rows. Exports of chats between people are refused: they have no rows until `bespoke read` knows the user."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in NEED_A_NAME:
            self.fail(
                f"{value!r} needs the name of the user: run `bespoke read FILE --as {value} --me NAME --out examples.jsonl` first",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


ROW_FORMAT = _RowFormat(ROW_FORMATS)


def field_option(command: Command) -> Command:
    return click.option(
        "--field",
        "fields",
        multiple=True,
        metavar="NAME=COLUMN",
        help="Column that holds prompt, completion, ..., or several joined as 'prompt={question}\\n{input}'; may be repeated.",
    )(command)


def encoding_option(command: Command) -> Command:
    return click.option(
        "--encoding", metavar="NAME", help="Encoding of the file, such as cp1252 [UTF-8, or UTF-16 by its mark]."
    )(command)


def given_fields(values: Sequence[str]) -> dict[str, str]:
    """Returns `--field` as a dictionary. In a join of columns, \\n is a line end and \\t a tab: a shell hardly types them."""
    return {
        name: re.sub(r"\\([nt\\])", lambda escape: _ESCAPES[escape[1]], column) if "{" in column else column
        for name, column in pairs("--field", values).items()
    }


class Unused(Protocol):
    """The part of a ReadReport and a DataReport that counts what was not used."""

    @property
    def dropped(self) -> Mapping[str, int]: ...
    @property
    def repeated_rows(self) -> int: ...
    @property
    def left_out(self) -> Mapping[str, int]: ...
    @property
    def unknown_keys(self) -> Mapping[str, int]: ...


def unused_lines(file: str | Path, unused: Unused) -> list[str]:
    """Returns a line for each kind of content of a file that was not used."""
    lines = [f"  dropped: {count} rows, {reason}" for reason, count in sorted(unused.dropped.items())]
    lines += [f"  repeated: {unused.repeated_rows} rows are the same as an earlier one"] if unused.repeated_rows else []
    lines += [f"  left out: {count} {what}" for what, count in sorted(unused.left_out.items()) if count]
    return lines + unknown_lines(file, unused.unknown_keys)


def unknown_lines(file: str | Path, keys: Mapping[str, int]) -> list[str]:
    """Returns a line for each unused key or column."""
    word = "column" if Path(file).suffix.lower() in (".csv", ".tsv") else "key"
    lines = [f"  unknown {word} {shown(key)} in {count} rows" for key, count in sorted(keys.items())[:_MOST_KEYS]]
    more = len(keys) - len(lines)
    return [*lines, f"  and {more} more unknown {word}s"] if more else lines
