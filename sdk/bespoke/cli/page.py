# SPDX-License-Identifier: Apache-2.0
"""Writer of docs/reference/command_line.md: `python -m bespoke.cli.page > docs/reference/command_line.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from bespoke import errors
from bespoke.cli import Commands, cli
from bespoke.cli.output import INTERRUPTED
from bespoke.errors import BespokeError
from bespoke.verbs import VERBS

__all__ = ["command_line_page", "error_classes"]

_HEAD = """# Command line

Run `bespoke`, or `python -m bespoke.cli`. `python -m bespoke.cli.page` writes this page from the commands themselves.

Results go to stdout. Errors, remarks and progress bars go to stderr; bars show on a terminal only. With `--format json`, stdout has
one JSON object and nothing else: the result, or `{"error": {"kind", "subject", "got", "expected", "next_step", "exit_code"}}`
for an error. Its message also goes to stderr. A number that is not finite is `null`.

## What can be done, and what it is called

VERBS

`examples` is the attribute of a `PersonalModel`. C functions that free the results of others are not listed.

## Settings from a file

`bespoke build OUT --config bespoke.toml` reads a file shaped like the arguments of `Personalizer`. A flag wins over the file.
`--optimizers` and `--targets` choose names and keep the file's options for these names. Paths in the file are relative to its
folder. `data` is a file, `auto` or `none`. `auto` is the default: nothing but the base model's own answers, which it
[rehearses](../explanation/rehearsal.md). `rehearsal = false` leaves them out. Write `./none` for a file of that name.

```toml
model = "models/stories260K"
targets = "executorch"
data = "general.jsonl"
train_on = "assistant"

[optimizers.mesp]      # the first is the default; a field of [training] here overrides it for this method
update = "adamw"

[lora]
rank = 8

[training]
learning_rate = 2e-4   # by default each method has its own: 2e-4, with SGD 1e-2, mezo 5e-5
sequence_lengths = [64, 128]

[budget]
memory_mb = 200
```

## How a command ends

| code | when |
|---|---|
| 0 | done. A refused adapter and a stop on request are no errors: the report names them |
| 1 | a defect of bespoke: an unexpected exception, shown with its traceback |
"""


def error_classes() -> list[type[BespokeError]]:
    """Returns every class of bespoke.errors, in the order of that module."""
    return [entry for entry in vars(errors).values() if inspect.isclass(entry) and issubclass(entry, BespokeError)]


def command_line_page() -> str:
    """Returns the page as Markdown: how commands print and end, then the help of each."""
    lines = [_HEAD.rstrip("\n").replace("VERBS", _verbs_table())]
    by_code: dict[int, list[type[BespokeError]]] = {}
    for kind in error_classes():
        by_code.setdefault(kind.exit_code, []).append(kind)
    for code in sorted(set(by_code) - {1}):
        kinds = "; ".join(f"`{kind.__name__}`: {_first_sentence(kind)}" for kind in by_code[code])
        lines.append(f"| {code} | {'a command line that cannot be read; ' if code == 2 else ''}{kinds} |")
    lines.append(f"| {INTERRUPTED} | Ctrl-C. `train` stops in a committed state at the first one, and ends with 0 |")
    for name, text in _helps():
        lines += ["", f"## {name}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


def _helps() -> Iterator[tuple[str, str]]:
    """Yields title and help of `bespoke` and of each built-in command."""
    own = _WithoutPlugins("bespoke", commands=cli.commands, params=cli.params, help=cli.help)
    parent = click.Context(own, info_name="bespoke", terminal_width=100, **cli.context_settings)
    yield "bespoke", own.get_help(parent)
    for name, command in cli.commands.items():
        yield from _help(command, name, parent)


def _help(command: click.Command, name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100)
    yield context.command_path, command.get_help(context)
    for under, part in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _help(part, under, context)


class _WithoutPlugins(Commands):
    """The commands without plugins, because the page must not depend on what is installed."""

    def _of_plugins(self) -> dict[str, click.Command]:
        return {}


def _first_sentence(kind: type[BespokeError]) -> str:
    return " ".join((kind.__doc__ or "").split()).partition(". ")[0].rstrip(".")


def _verbs_table() -> str:
    """Returns the table of verbs as Markdown."""
    rows = [
        ("to", "Python", "command line", "C", "Kotlin", "Swift"),
        ("---",) * 6,
        *((verb.what, *map(_cell, verb[1:])) for verb in VERBS),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(names: str | None) -> str:
    return "-" if names is None else ", ".join(f"`{name}`" for name in names.split(", "))


if __name__ == "__main__":
    print(command_line_page(), end="")
