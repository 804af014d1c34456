# SPDX-License-Identifier: Apache-2.0
"""`bespoke read`: examples out of what another app exported."""

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


@click.command(short_help="Make examples of an exported chat.")
@click.argument("file", type=PATH)
@click.option(
    "--as", "kind", required=True, type=click.Choice(KINDS), help="What wrote the file, or how its rows are laid out."
)
@click.option(
    "--me", metavar="NAME", help="whatsapp, telegram: whose words are the assistant's; without it the names are listed."
)
@encoding_option
@click.option("--out", type=PATH, metavar="FILE", help="Write the examples there [standard output].")
def read(file: Path, kind: str, me: str | None, encoding: str | None, out: Path | None) -> None:
    """Make examples of FILE, one JSON object a line: what `train --examples` and `build --data` take.

    In WhatsApp and Telegram the words of --me are the assistant's, so that they are learned, and everybody else's are the
    user's. Notices, deleted messages and files are left out. Neighbouring messages of one side are one turn; a pause of more
    than four hours ends a conversation, unless --me answers after it. Standard error says what was left out.

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
    data = "".join(f"{line}\n" for line in lines).encode(
        "utf-8", "replace"
    )  # half of a surrogate pair is a character of no text
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
        found = read_export(file, kind, me, report.left_out, encoding)
    elif me is not None:
        raise ConfigError(
            setting("me"), got=repr(me), expected=f"no name: rows of {kind} say who speaks", next_step="Leave it out"
        )
    else:
        found = read_examples(file, kind, None, report, encoding)  # type: ignore[arg-type]
    yield from (example for _, example in found)
