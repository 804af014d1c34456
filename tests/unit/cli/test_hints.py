# SPDX-License-Identifier: Apache-2.0

"""Every message of the SDK and of the core, said on the command line: it names options and commands, and nothing of Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke.cli import cli
from bespoke.cli.hints import on_the_command_line, option_names
from bespoke.cli.verbs import VERBS
from bespoke.errors import BespokeError, ConfigError
from tests.conftest import REPOSITORY

# For the authors of optimizers, targets and tests, who write Python; of the store, what only its own callers can meet.
NOT_FOR_USERS = (
    "graph",
    "methods",
    "compiler",
    "golden/make.py",
    "golden/reference.py",
    "golden/texts.py",
    "testing",
    "plan",
    "ops",
    "contracts.py",
    "state/runs.py",
    "state/versions.py",
    "rules/schedule.py",
)
METHODS = sorted({name.rpartition(".")[2] for verb in VERBS for name in (verb.python or "").split(", ") if "_" in name})
OF_PYTHON = re.compile(
    rf"(?<!PersonalModel\.)\b(?:{'|'.join(METHODS)})\b|\b(?!read\(|mapped\(|AutoModel)\w+\(\)|StateStore|\bruntime '|"
    r"Budget\(|\bPersonalModel\.open\b"
)


def messages() -> Iterator[tuple[Path, str]]:
    """Of Python: `expected` and `next_step`, an expression within a text standing as X. Of C++: texts that name a method."""
    sdk = REPOSITORY / "sdk" / "bespoke"
    for path in sorted(sdk.rglob("*.py")):
        if str(path.relative_to(sdk)).startswith((*NOT_FOR_USERS, "cli/")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in ("next_step", "expected"):
                yield from ((path, text) for text in texts(node.value))
    for path in sorted((REPOSITORY / "bindings" / "native" / "src").rglob("*.cpp")):
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text(encoding="utf-8")):
            if "abandon_run" in text or "reset_for_new_base" in text or "forget(" in text:
                yield path, text


def texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)


def test_no_message_names_python_on_the_command_line() -> None:
    found = list(messages())
    assert len(found) > 200
    assert any(path.suffix == ".cpp" for path, _ in found)
    options = option_names(cli.commands["build"]) | option_names(cli.commands["train"])
    left = []
    for path, text in found:
        said = on_the_command_line(ConfigError("x", got="y", expected="z", next_step=text), options).next_step
        if OF_PYTHON.search(re.sub(r"In Python, [^;]*", "", said)):
            left.append(f"{path.relative_to(REPOSITORY)}: {said}")
    assert not left, "\n".join(left)


@pytest.mark.parametrize(
    ("python", "command"),
    [
        (
            "Continue it without them, or call abandon_run() and train again",
            "Continue it without them, or run bespoke abandon and train again",
        ),
        ("Change train.learning_rate", "Change --learning-rate"),
        ("Set Budget(memory_mb=43.4), shorten the sequences", "Set --memory-mb 43.4, shorten the sequences"),
        (
            "Call reset_for_new_base: examples are kept",
            "In Python, call PersonalModel.reset_for_new_base: examples are kept",
        ),
        (
            "Build it with targets='executorch', or train it with the engine 'torch'",
            "Build it with --targets executorch, or train it with --engine torch",
        ),
        (
            "Name the model's state, its method and its data",
            "Name the model's state, its method and its data",
        ),  # words stay words
    ],
)
def test_python_is_translated_and_words_are_left_alone(python: str, command: str) -> None:
    options = option_names(cli.commands["build"]) | option_names(cli.commands["train"])
    error = ConfigError("train.learning_rate", got="nan", expected="a number", next_step=python)
    said: BespokeError = on_the_command_line(error, options)
    assert (type(said), said.subject, said.next_step) == (ConfigError, "--learning-rate", command)


def test_settings_of_a_file_keep_their_names() -> None:
    error = ConfigError(
        "training.learning_rate", got="nan", expected="a number", next_step="Change training.learning_rate"
    )
    assert str(on_the_command_line(error, {"learning_rate": "--learning-rate"}, file=True)) == str(error)
