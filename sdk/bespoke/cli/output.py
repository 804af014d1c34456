# SPDX-License-Identifier: Apache-2.0
"""Shared parts of all commands: options, JSON, tables, errors and progress bars. Only results go to stdout."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from bespoke import arguments
from bespoke.errors import BespokeError, ConfigError, GenerationError, SignatureError, StateError, printable
from bespoke.format.plain_file import read_plain

_MAX_TYPED = 16 * 2**20  # characters of a prompt, because standard input may never end
INTERRUPTED = 130  # exit code that a shell reports for a command that Ctrl-C ended
Tell = Callable[[str, int, int], None]
"""Called with (what, done, total) as work proceeds. A total of 0 is not known."""
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Output:
    """How this run of the command line prints results and errors."""

    debug: bool = False
    json: bool = False
    file: bool = False  # whether settings come from a file, whose names errors then use


class _Path(click.Path):
    """A path that may exist or not. An empty one is refused: it may come from a variable that is not set, and names this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        name = (
            "path" if param is None else param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        )
        arguments.path(name, value, "a path")
        return super().convert(value, param, ctx)


PATH = _Path(path_type=Path)


# ---- options that several commands have ----------------------------------------------------------------------------------


def format_option(command: Command) -> Command:
    def chosen(context: click.Context, _: click.Parameter, value: str) -> None:
        context.obj.json = value == "json"

    return click.option(
        "--format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=chosen,
        help="json prints one JSON object on stdout and nothing else.",
    )(command)


Trust = Mapping[str, Any]
"""The arguments of `read_bundle` and `PersonalModel.open` that authenticate a bundle."""


def trust_options(command: Command) -> Command:
    """Adds the options that authenticate a bundle, and passes them as `trust`."""

    @wraps(command)
    def with_trust(
        *arguments: Any, pin_sha256: str | None, public_key: Path | None, require_authenticated: bool, **options: Any
    ) -> Any:
        key = read_key(public_key)
        trust = {"pin_sha256": pin_sha256, "public_key": key, "require_authenticated": require_authenticated}
        return command(*arguments, trust=trust, **options)

    add_required = click.option(
        "--require-authenticated", is_flag=True, help="Refuse a bundle without one of these two."
    )
    add_key = click.option(
        "--public-key",
        type=PATH,
        metavar="FILE",
        help="ed25519 key (PEM, or 32 bytes raw or in hexadecimal) that must have signed the bundle.",
    )
    add_pin = click.option("--pin-sha256", metavar="HEX", help="sha256 that manifest.json must have.")
    return cast(Command, add_pin(add_key(add_required(with_trust))))


def engine_option(
    help: str = "What computes: torch, in this process, or the target that the device core runs (executorch, mlx, ...) in its "
    "own [executorch if the bundle has it and the core runs, else torch].",
) -> Callable[[Command], Command]:
    return click.option("--engine", metavar="NAME", help=help)


def need_state(bundle: Path, state: Path, trust: Trust) -> None:
    """Checks the bundle, then that the state exists, for commands that do not create one."""
    from bespoke.bundle.reader import read_bundle

    read_bundle(bundle, **trust).close()
    if not os.path.isfile(state / "state.sqlite"):
        raise StateError(
            str(state),
            got="no state",
            expected="the folder of a user's state, as training made it",
            next_step="Check the path; `bespoke train` with --examples makes a state",
        )


def state_option(command: Command) -> Command:
    return click.option(
        "--state",
        required=True,
        type=PATH,
        metavar="DIR",
        help="The user's folder: examples, progress, accepted adapters. `train` and `ui` make it.",
    )(command)


def read_key(path: Path | None) -> bytes | None:
    """Returns the bytes of a public key's file, with hexadecimal decoded. `raw_public_key` checks them."""
    if path is None:
        return None
    try:
        data = read_plain(path, 2**20)
    except OSError as error:
        raise SignatureError(
            f"public key {path}", got=error.strerror or "an error", expected="a file", next_step="Check the path"
        ) from None
    try:
        return data if len(data) == 32 else bytes.fromhex(data.decode("ascii"))
    except ValueError:
        return data


def typed(read: Callable[[int], str]) -> str:
    """Returns the text of standard input, from its `read` or `readline`. Raises GenerationError if it cannot be a prompt."""
    try:
        given = read(_MAX_TYPED + 1)
        if len(given) <= _MAX_TYPED:
            return given
        got = f"more than {_MAX_TYPED} characters"
    except UnicodeDecodeError:
        got = "bytes that are not UTF-8"

    raise GenerationError(
        "standard input",
        got=got,
        expected=f"a prompt of at most {_MAX_TYPED} characters, in UTF-8",
        next_step="Give a shorter one, or convert it with iconv",
    )


def pairs(option: str, values: Sequence[str]) -> dict[str, str]:
    """Returns {"a": "b"} for ("a=b",)."""
    named = {}
    for value in values:
        name, equals, right = value.partition("=")
        if not equals or not name or not right:
            raise ConfigError(option, got=repr(value), expected="NAME=VALUE", next_step=f"Write {option} name=value")
        named[name.strip()] = right
    return named


# ---- results and errors --------------------------------------------------------------------------------------------------


def print_json(document: Any) -> None:
    """Prints a JSON document. A number that is not finite becomes null."""
    click.echo(json.dumps(_plain(document), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "model_dump"):  # a pydantic model, without importing pydantic for it
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table with columns as wide as their widest cell and numbers aligned right."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]  # cells may hold text from outside
    widths = [max(len(line[column]) for line in [list(head), *cells]) for column in range(len(head))]
    right = [bool(rows) and all(isinstance(row[column], (int, float)) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)).rstrip()
        for line in [list(head), *cells]
    )


def tell_error(output: Output, error: BespokeError | click.ClickException) -> None:
    """Prints the message on stderr. With --format json, also prints `{"error": {...}}` on stdout, with all parts for a script."""
    if isinstance(error, click.ClickException):
        message = io.StringIO()
        error.show(file=message)
        lines = message.getvalue().expandtabs(4).rstrip("\n").split("\n")  # click lists choices behind tabs
        click.echo("\n".join(map(printable, lines)), err=True)  # a message repeats what was typed
    else:
        click.echo(f"bespoke: {error}", err=True)
    if output.json:
        print_json({"error": describe(error)})


def describe(error: BespokeError | click.ClickException) -> dict[str, Any]:
    """Returns the parts of an error as a dictionary."""
    if isinstance(error, BespokeError):
        parts = [error.subject, error.got, error.expected, error.next_step]
    else:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "bespoke"
        parts = [
            "command line",
            printable(error.format_message()),
            "a command line as the help shows",
            f"Read {command} --help",
        ]
    names = ("subject", "got", "expected", "next_step")
    return {"kind": type(error).__name__, **dict(zip(names, parts, strict=True)), "exit_code": error.exit_code}


def cut(examples: int, tokens: int, trained: int) -> str:
    """Returns the warning that examples were too long and how much was cut."""
    lost = f"{trained or 'none'} of them to be trained on"
    return (
        f"cut: {examples} examples are longer than the longest sequence; {tokens} tokens left out, {lost}. "
        "To keep them, build with a longer one (--sequence-lengths)"
    )


# ---- progress ------------------------------------------------------------------------------------------------------------


@contextmanager
def progress() -> Iterator[Tell]:
    """Shows a progress bar for each reported `what`, if stderr is a terminal. Yields the function that reports."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        known: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            name = what.partition(":")[0]  # "training: loss 3.21" updates the bar "training"
            if name not in known:
                known[name] = bars.add_task(what, total=None)
            bars.update(known[name], description=what, completed=done, total=total or None)

        yield tell
