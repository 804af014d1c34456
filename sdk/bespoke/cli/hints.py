# SPDX-License-Identifier: Apache-2.0
"""Turns the verbs and settings in an error (bespoke.remedies) into commands and options of the command that was run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import click

from bespoke.cli.row_options import ROW_FORMAT
from bespoke.errors import BespokeError, ConfigError
from bespoke.remedies import Call, Like, Python, SettingName, rendered
from bespoke.verbs import VERB_OF

__all__ = ["CommandLine", "on_the_command_line", "option_names"]

_TABLES = ("", "train", "training", "lora", "budget")  # tables whose settings are options


def option_names(command: click.Command) -> dict[str, str]:
    """Returns the options of a command, {"memory_mb": "--memory-mb"}. `format` is the shape of rows, not of the output."""
    return {
        "format" if parameter.type is ROW_FORMAT or parameter.name == "kind" else parameter.name: parameter.opts[0]
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name is not None and parameter.expose_value
    }


def on_the_command_line(error: BespokeError, options: Mapping[str, str], file: bool = False) -> BespokeError:
    """Returns the same error in the words of a command with these options. Settings of a `file` keep their names."""
    if file:
        options = {}
    if isinstance(error, ConfigError) and error.problems:
        problems = [on_the_command_line(problem, options) for problem in error.problems]
        return type(error).from_problems([problem for problem in problems if isinstance(problem, ConfigError)])
    language = CommandLine(options)
    subject, got, expected, next_step = (
        rendered(part, language) for part in (error.subject, error.got, error.expected, error.next_step)
    )
    return type(error)(subject, got=got, expected=expected, next_step=next_step)


class CommandLine:
    """The words of a command with these options: `{"memory_mb": "--memory-mb"}`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def call(self, call: Call) -> str:
        command = VERB_OF[call.verb].command
        if command is None or not command.startswith("bespoke "):
            return f"in Python, call {VERB_OF[call.verb].full_python}"
        return f"run {command.partition(', ')[0]}"

    def verb(self, name: str) -> str:
        command = VERB_OF[name].command
        return f"{VERB_OF[name].full_python} in Python" if command is None else command.partition(", ")[0]

    def setting(self, setting: SettingName) -> str:
        """Returns the option of a setting, or Python's words if it has none. Some options begin with the name of their table."""
        name, index = _split_index(setting.name)
        table, _, field = name.rpartition(".")
        if field in _TABLES:  # a whole table, which no option sets
            return Python().setting(setting)
        option = self._options.get(f"{table}_{field}") or self._options.get(field) if table in _TABLES else None
        if option is None:
            return Python().setting(setting)
        if setting.key is not None:
            return f"{option} {shlex.quote(setting.key)}"
        if setting.name == "optimizers" and isinstance(setting.value, Mapping):  # their options
            return " ".join(f"--option {name}.FIELD=VALUE" for name in setting.value)
        return _given(option, setting.value) if setting.has_value else option + index


def _split_index(name: str) -> tuple[str, str]:
    """Splits the number of an element off the setting whose value is the list: ("lora.targets", ".1")."""
    stem, dot, last = name.rpartition(".")
    return (stem, f".{last}") if dot and last.isdigit() else (name, "")


def _given(option: str, value: Any) -> str:
    if value is None:
        return f"no {option}"
    if isinstance(value, bool):
        return option if value else f"--no-{option.removeprefix('--')}"
    if isinstance(value, Like):
        return f"{option} {value.command}"
    if isinstance(value, Mapping):
        return " ".join(f"{option} {shlex.quote(f'{name}={given}')}" for name, given in value.items())
    return f"{option} {shlex.quote(str(value))}"
