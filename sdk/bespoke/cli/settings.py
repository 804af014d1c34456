# SPDX-License-Identifier: Apache-2.0
"""Turns a TOML file and flags into the arguments of Personalizer. A flag wins over the file.

The flags are written out here, because importing pydantic would slow the start of every command. A test compares them with the
models of pydantic.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bespoke.arguments import path as checked_path
from bespoke.cli.output import Command, pairs
from bespoke.errors import ConfigError
from bespoke.format.json_strict import shown_json
from bespoke.format.plain_file import read_plain
from bespoke.remedies import setting

if TYPE_CHECKING:
    from bespoke.personalizer import Personalizer

TABLES = ("lora", "training", "budget")
ARGUMENTS = (
    "model",
    "tokenizer",
    "optimizers",
    "targets",
    "context",
    "draft_tokens",
    "data",
    "data_format",
    "fields",
    "encoding",
    "rehearsal",
    "text",
    "train_on",
    "licence",
    "template_date",
    "signing_key",
    *TABLES,
)
DATA_WORDS = ("auto", "none")  # values of `data` that are not the name of a file
NO_OPTIMIZER = "none"  # a bundle that answers and does not train


@dataclass(frozen=True)
class Flag:
    """A field of Lora, Training or Budget as a flag. `compiled`: the build fixes it, so `train` does not have the flag."""

    table: str
    field: str
    type: Any
    help: str
    compiled: bool = False

    @property
    def parameter(self) -> str:
        """The parameter of the command. `targets` of Lora gets a prefix, because the command has `targets` of its own."""
        return f"{self.table}_{self.field}" if self.field == "targets" else self.field

    @property
    def option(self) -> str:
        return "--" + self.parameter.replace("_", "-")


def _lengths(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 64,128") from None


class _Budgets(click.ParamType):
    name = "float,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | tuple[float, ...]:
        try:
            budgets = tuple(float(part) for part in str(value).split(","))
            return budgets if len(budgets) > 1 else budgets[0]
        except ValueError:
            self.fail(f"{value!r} is not a number, or a list of them such as 200,120,80", param, ctx)


def _names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value.split(","))


_PARSED: dict[str, Callable[..., Any]] = {"sequence_lengths": _lengths, "lora_targets": _names}

_BUDGET = "Memory limit of the process that trains, MB of 10**6 bytes; with torch, of what training adds"

FLAGS = (
    Flag("lora", "rank", int, "Width of the adapter [8].", True),
    Flag("lora", "alpha", float, "Scale of the adapter, multiplied by alpha / rank [16].", True),
    Flag(
        "lora",
        "targets",
        str,
        "Linear layers that get an adapter [q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj].",
        True,
    ),
    Flag(
        "lora",
        "train",
        click.Choice(["both", "B"]),
        "Matrices of the adapter that are trained; B alone is LoRA-FA [both].",
        True,
    ),
    Flag("training", "learning_rate", float, "Peak learning rate [2e-4]."),
    Flag("training", "steps", int, "Steps of a run and of its schedule [by the number of examples]."),
    Flag("training", "sequence_lengths", str, "Lengths in tokens to plan for [64,128,256].", True),
    Flag("training", "batch_size", int, "Rows of a micro-batch [1].", True),
    Flag("training", "accumulation", int, "Micro-batches of a step [1]."),
    Flag("training", "clip_norm", float, "Largest norm of all gradients together [none].", True),
    Flag(
        "training",
        "schedule",
        click.Choice(["constant", "linear", "cosine"]),
        "How the learning rate changes [constant].",
    ),
    Flag("training", "warmup_steps", int, "Steps in which the learning rate rises [0]."),
    Flag("training", "seed", int, "Seed of batches, noise and the initial adapter [0]."),
    Flag("training", "general_share", float, "Share of batches from the bundle's own data [0.3]."),
    Flag("training", "general_tolerance", float, "Largest relative rise allowed for the loss on general data [0.05]."),
    Flag("training", "useful_gain", float, "Least relative fall of the loss on the user's examples [0.002]."),
    Flag("training", "commit_seconds", float, "Seconds between two commits [30]."),
    Flag("training", "write_mb_per_second", float, "Most MB a second that commits may write [2]."),
    Flag("training", "write_mb_per_run", float, "Most MB that a run may write to its state [300]."),
    Flag("training", "packing", bool, "Pack the bundle's own text rows into full sequences [no].", True),
    Flag("budget", "memory_mb", _Budgets(), f"{_BUDGET}. 200,120,80: also plans for smaller budgets [no limit]."),
)

TRAIN_FLAGS = (
    Flag("budget", "memory_mb", float, f"{_BUDGET} [the bundle's budget]."),
    *(
        replace(flag, help=flag.help.partition(" [")[0].rstrip(".") + " [the bundle's].")
        for flag in FLAGS
        if not flag.compiled and flag.field not in ("steps", "memory_mb")
    ),
)


def setting_flags(flags: Sequence[Flag]) -> Callable[[Command], Command]:
    """Adds a click option for each flag. It is None if it was not given, so the value of a file stays."""

    def add(command: Command) -> Command:
        for flag in reversed(flags):
            name = f"{flag.option}/--no-{flag.field.replace('_', '-')}" if flag.type is bool else flag.option
            more: dict[str, Any] = (
                {} if flag.type is bool else {"type": flag.type, "callback": _PARSED.get(flag.parameter)}
            )
            command = click.option(name, flag.parameter, default=None, help=flag.help, **more)(command)
        return command

    return add


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a file as Personalizer's arguments. Paths in it are relative to its folder."""
    try:
        document = tomllib.loads(read_plain(path, 2**20).decode())
    except OSError as error:
        raise ConfigError(
            str(path), got=error.strerror or "an error", expected="a readable TOML file", next_step="Check --config"
        ) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # such as a number of thousands of digits, or arrays of thousands of levels
        raise ConfigError(str(path), got=f"no TOML: {error}", expected="TOML", next_step="Correct the file") from None

    problems = []
    for name in document.keys() - set(ARGUMENTS):
        near = difflib.get_close_matches(name, ARGUMENTS, 1)
        problems.append(
            ConfigError(
                f"{path}: {name}",
                got="an unknown setting",
                expected=f"one of {', '.join(ARGUMENTS)}",
                next_step=f"Did you mean '{near[0]}'?" if near else "Remove it",
            )
        )
    for name in (*TABLES, "fields"):
        if not isinstance(document.get(name, {}), dict):
            problems.append(
                ConfigError(
                    f"{path}: {name}",
                    got=shown_json(document[name]),
                    expected="a table",
                    next_step=f"Write [{name}] and its fields",
                )
            )
    for name in ("model", "data", "data_format", "encoding", "train_on", "licence", "template_date", "signing_key"):
        if not isinstance(document.get(name, ""), str):
            problems.append(
                ConfigError(
                    f"{path}: {name}", got=shown_json(document[name]), expected="text", next_step="Put it in quotes"
                )
            )
    if problems:
        raise ConfigError.from_problems(sorted(problems, key=lambda problem: problem.subject))

    for name in ("data", "signing_key"):
        if name in document and not (name == "data" and document[name] in DATA_WORDS):
            document[name] = str(path.parent / document[name])
    if "model" in document and os.path.isdir(path.parent / document["model"]):  # else it is a hub id
        document["model"] = str(path.parent / document["model"])
    return document


def personalizer(config: Path | None, given: Mapping[str, Any], options: Sequence[str]) -> Personalizer:
    """Returns the Personalizer for a TOML file, for flags that are not None, and for `--option NAME.FIELD=VALUE`.

    Raises a ConfigError that lists all problems that it can detect together.
    """
    arguments = read_toml(config) if config is not None else {}
    flags = {name: value for name, value in given.items() if value is not None and value != ()}
    for flag in FLAGS:
        if flag.parameter in flags:
            arguments[flag.table] = {**arguments.get(flag.table, {}), flag.field: flags.pop(flag.parameter)}

    for kind in ("optimizers", "targets"):
        if kind not in arguments and kind not in flags:
            continue
        named = _named(arguments.pop(kind, None))
        if kind in flags:
            chosen = [name for value in flags.pop(kind) for name in value.split(",") if name]
            named = {name: named.get(name, {}) for name in chosen}
        arguments[kind] = {} if kind == "optimizers" and list(named) == [NO_OPTIMIZER] else named

    arguments.update(flags)
    _apply_options(arguments, options)
    return _checked(arguments)


def _named(value: Any) -> dict[str, Any]:
    """Returns name -> options for "mesp", ["mesp", "mezo"] or a table."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {value: {}}
    if isinstance(value, dict) and all(isinstance(options, dict) for options in value.values()):
        return dict(value)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    raise ConfigError(
        "optimizers or targets",
        got=shown_json(value, 200),
        expected="a name, a list of names, or a table of options for each",
        next_step="Write for instance [optimizers.mesp] and its options below",
    )


def _apply_options(arguments: dict[str, Any], options: Sequence[str]) -> None:
    for key, text in pairs("--option", options).items():
        name, _, field = key.partition(".")
        kind = next((kind for kind in ("optimizers", "targets") if name in arguments.get(kind, {})), None)
        if kind is None or not field:
            chosen = [*arguments.get("optimizers", {}), *arguments.get("targets", {})]
            raise ConfigError(
                f"--option {key}",
                got=repr(name),
                expected=f"NAME.FIELD=VALUE, NAME being one of {', '.join(chosen) or 'none'}",
                next_step="Name it with --optimizers or --targets too",
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            value = text  # a bare word is text
        arguments[kind][name] = {**arguments[kind][name], field: value}


def _checked(arguments: dict[str, Any]) -> Personalizer:
    """Returns the Personalizer for these arguments. Raises a ConfigError that lists all problems."""
    from bespoke.config import Budget, Lora, Training, settings_from
    from bespoke.personalizer import Personalizer

    problems: list[ConfigError] = []
    if "model" not in arguments:
        problems.append(
            ConfigError(
                setting("model"),
                got="none",
                expected="a folder or a hub id",
                next_step="Give --model, or model in the TOML file",
            )
        )
    for name, kind in (("lora", Lora), ("training", Training), ("budget", Budget)):
        if name in arguments:
            try:
                arguments[name] = settings_from(kind, name, arguments[name])
            except ConfigError as error:
                problems.append(error)
                del arguments[name]

    if arguments.get("data") == "none":
        arguments["data"] = None
    key = arguments.pop("signing_key", None)
    if key is not None:
        try:
            arguments["signing_key"] = read_plain(checked_path("signing_key", key, "a file"), 2**20)
        except ConfigError as error:
            problems.append(error)
        except OSError as error:
            problems.append(
                ConfigError(
                    f"signing key {key}",
                    got=error.strerror or "an error",
                    expected="a file",
                    next_step="Check the path",
                )
            )

    try:
        result = Personalizer(**{"model": "", **arguments})
    except ConfigError as error:
        problems.append(error)
    if problems:
        raise ConfigError.from_problems(problems)
    return result
