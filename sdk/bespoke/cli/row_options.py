# SPDX-License-Identifier: Apache-2.0
"""Options for the rows of a file, which several commands have, and what these commands say of rows that were not used."""

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
    """An export of a chat between people has no rows until it is said who of them is "me"."""

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
        help="Column that holds prompt, completion, ..., or several as 'prompt={question}\\n{input}'; may be repeated.",
    )(command)


def encoding_option(command: Command) -> Command:
    return click.option(
        "--encoding", metavar="NAME", help="Encoding of the file, such as cp1252 [UTF-8, or UTF-16 by its mark]."
    )(command)


def given_fields(values: Sequence[str]) -> dict[str, str]:
    """`--field` as a dictionary. In what joins columns, \\n is a line end and \\t a tab, which a shell has no easy way to type."""
    return {
        name: re.sub(r"\\([nt\\])", lambda found: _ESCAPES[found[1]], column) if "{" in column else column
        for name, column in pairs("--field", values).items()
    }


class Unused(Protocol):
    """What a ReadReport and a DataReport say of what was not used."""

    @property
    def dropped(self) -> Mapping[str, int]: ...
    @property
    def repeated_rows(self) -> int: ...
    @property
    def left_out(self) -> Mapping[str, int]: ...
    @property
    def unknown_keys(self) -> Mapping[str, int]: ...


def unused_lines(file: str | Path, found: Unused) -> list[str]:
    """A line for each thing in a file that is not used."""
    lines = [f"  dropped: {count} rows, {reason}" for reason, count in sorted(found.dropped.items())]
    lines += [f"  repeated: {found.repeated_rows} rows are the same as an earlier one"] if found.repeated_rows else []
    lines += [f"  left out: {count} {what}" for what, count in sorted(found.left_out.items()) if count]
    return lines + unknown_lines(file, found.unknown_keys)


def unknown_lines(file: str | Path, keys: Mapping[str, int]) -> list[str]:
    """Keys, or columns, that are not used."""
    word = "column" if Path(file).suffix.lower() in (".csv", ".tsv") else "key"
    lines = [f"  unknown {word} {shown(key)} in {count} rows" for key, count in sorted(keys.items())[:_MOST_KEYS]]
    more = len(keys) - len(lines)
    return [*lines, f"  and {more} more unknown {word}s"] if more else lines
