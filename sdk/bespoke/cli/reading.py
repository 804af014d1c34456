# SPDX-License-Identifier: Apache-2.0
"""`bespoke read`: examples from the exports of other apps."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bespoke.cli.output import PATH
from bespoke.cli.row_options import encoding_option, unused_lines
from bespoke.errors import ConfigError
from bespoke.format.result_file import check_place, write
from bespoke.remedies import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bespoke.data.files import ReadReport

KINDS = ("whatsapp", "telegram", "chatgpt", "claude", "sharegpt", "alpaca")


@click.command(short_help="Turn an exported chat into examples.")
@click.argument("file", type=PATH)
@click.option(
    "--as", "kind", required=True, type=click.Choice(KINDS), help="App that wrote the file, or shape of its rows."
)
@click.option(
    "--me", metavar="NAME", help="whatsapp, telegram: name of the person to imitate. Without it, the names are listed."
)
@encoding_option
@click.option("--out", type=PATH, metavar="FILE", help="File to write the examples to [standard output].")
def read(file: Path, kind: str, me: str | None, encoding: str | None, out: Path | None) -> None:
    """Turn FILE into examples for `train --examples` and `build --data`, one JSON object a line.

    In WhatsApp and Telegram, messages of --me become the assistant's, which are learned. All other messages become the user's.
    Notices, deleted messages and files are left out. Adjacent messages of the same role are joined into a turn. A pause of more
    than four hours ends a conversation, unless --me answers after it. Standard error lists what was left out.

    \b
    bespoke read _chat.txt --as whatsapp --me Jonas --out examples.jsonl
    bespoke read conversations.json --as chatgpt --out examples.jsonl
    """
    if out is not None:
        check_place(f"--out {out}", out)
        if out.exists() and file.exists() and os.path.samefile(out, file):
            raise ConfigError(
                f"--out {out}", got="the file that is read", expected="another file", next_step="Name another file"
            )

    from bespoke.data.files import ReadReport

    report = ReadReport()
    lines = [json.dumps(example, ensure_ascii=False) for example in _examples(file, kind, me, encoding, report)]
    text = "".join(f"{line}\n" for line in lines)
    data = text.encode("utf-8", "replace")  # replaces halves of surrogate pairs
    if out is None:
        click.echo(data.decode(), nl=False)
    else:
        write(f"--out {out}", out, data)
    click.echo("\n".join([f"{file}: {len(lines)} examples", *unused_lines(file, report)]), err=True)


def _examples(
    file: Path, kind: str, me: str | None, encoding: str | None, report: ReadReport
) -> Iterator[dict[str, Any]]:
    from bespoke.data.files import read_examples
    from bespoke.data.reading.exports.kinds import EXPORTS, read_export

    if kind in EXPORTS:
        numbered = read_export(file, kind, me, report.left_out, encoding)
    elif me is not None:
        raise ConfigError(
            setting("me"), got=repr(me), expected=f"no name: rows of {kind} say who speaks", next_step="Leave it out"
        )
    else:
        numbered = read_examples(file, kind, None, report, encoding)  # type: ignore[arg-type]
    yield from (example for _, example in numbered)
