# SPDX-License-Identifier: Apache-2.0
"""Errors of the SDK name what Python calls things; on the command line they name its options and commands.

One rule for options, taken from the command that was run: what Python calls `train.learning_rate` or `memory_mb=64` is the option
of that parameter. And a short table for what is said in words of Python, the command's names from the table of verbs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import click

from bespoke.cli.verbs import VERBS
from bespoke.errors import BespokeError, ConfigError

__all__ = ["on_the_command_line", "option_names", "said"]

_COMMANDS = {verb.python.partition(", ")[0]: verb.command for verb in VERBS if verb.python and verb.command}
_ABANDON, _FORGET, _OPEN = (
    _COMMANDS[name] for name in ("PersonalModel.abandon_run", "examples.forget", "PersonalModel.open")
)
# (what a message says for Python, what it says on the command line); where there is no command, it says that it is one of Python.
PHRASES = (
    (r"call abandon_run\(\)", f"run {_ABANDON}"),
    (r"Call forget\(id\) first", f"Run {_FORGET} first"),
    (r"call forget again", f"run {_FORGET} again"),
    (r"Call reset_for_new_base\b", "In Python, call PersonalModel.reset_for_new_base"),
    (r"Use generate_ids\b", "In Python, use PersonalModel.generate_ids"),
    (r"Pass trust_base=True", "In Python, pass trust_base=True to PersonalModel.import_adapter"),
    (r"with PersonalModel\.open\b", f"with {_OPEN}"),
    (r"\bthe engine '(\w+)'", r"--engine \1"),
    (r"\bengine '(\w+)'", r"--engine \1"),
    (r"Budget\(memory_mb=([\d.]+)\)", r"--memory-mb \1"),
    (r"ask for base=True", "ask for --base"),
    (r"\btargets='(\w+)'", r"--targets \1"),
    (r"\boptimizers='(\w+)'", r"--optimizers \1"),
    (r"\btrain_on='(\w+)'", r"--train-on \1"),
    (r"\btext=False\b", "--no-text"),
    (r"\blicence=\"\.\.\.\"", "--licence TEXT"),
    (r"\bdate=\"([\d-]+)\"", r"--template-date \1"),
    (r"\bfields=\{'prompt': 'question', 'completion': 'answer'\}", "--field prompt=question --field completion=answer"),
    (r"\bthat holds it in fields$", "that holds it: --field NAME=COLUMN"),
    (r"\blabels=\[\.\.\.\]", "--label for each"),
    (r"\bfields\['(\w+)'\]", r"--field \1"),
    (r"\bwhich fields names\b", "which --field names"),
    (r"Correct fields,", "Correct --field,"),
    (r"Write fields as \{what it is: the column that holds it\}", "Write --field NAME=COLUMN"),
    (r"^Add an example$", "Add some with bespoke train --examples FILE"),
    (r"\boptimizers=\{'(\w+)': \{\.\.\.\}\}", r"--option \1.FIELD=VALUE"),
)


def option_names(command: click.Command) -> dict[str, str]:
    """{"memory_mb": "--memory-mb"} of a command."""
    return {
        parameter.name: parameter.opts[0]
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name is not None
    }


def on_the_command_line(error: BespokeError, options: Mapping[str, str], file: bool = False) -> BespokeError:
    """The same error in the words of a command that has these options; settings of a `file` keep their names."""
    if file:
        options = {}
    if isinstance(error, ConfigError) and error.problems:
        said_again = [on_the_command_line(problem, options) for problem in error.problems]
        return type(error).from_problems([problem for problem in said_again if isinstance(problem, ConfigError)])
    got, expected, next_step = (said(part, options) for part in (error.got, error.expected, error.next_step))
    subject = options.get(error.subject, said(error.subject, options))
    if next_step == f"Change {error.subject}":
        next_step = f"Change {subject}"
    return type(error)(subject, got=got, expected=expected, next_step=next_step)


def said(text: str, options: Mapping[str, str]) -> str:
    """A text with names of Python, as the command line says it."""
    for python, words in PHRASES:
        text = re.sub(python, words, text)
    text = re.sub(r"\b(train|training|lora|budget)\.(\w+)", lambda found: _option(found, options), text)
    given = re.compile(r"(?<![\w.-])(\w+)=(?=[\w'\"{.-])")  # memory_mb=64
    text = given.sub(lambda found: f"{options[found[1]]} " if found[1] in options else found[0], text)
    # A name with an underscore is a name; one without may be a word.
    return re.sub(r"(?<![\w.-])[a-z]+(?:_[a-z]+)+\b", lambda found: options.get(found[0], found[0]), text)


def _option(found: re.Match[str], options: Mapping[str, str]) -> str:
    """Of a setting, as `training.steps`: its option has the field's name, or the table's too where that is another option's."""
    table, field = found.groups()
    return options.get(f"{table}_{field}") or options.get(field, found[0])
