# SPDX-License-Identifier: Apache-2.0

"""Every message of the SDK and of the core names verbs and settings as data, and says them in the command line's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from bespoke.cli import cli
from bespoke.cli.hints import on_the_command_line, option_names
from bespoke.errors import BespokeError, ConfigError, DataError, printable
from bespoke.remedies import Like, do, setting, verb
from bespoke.verbs import VERBS
from tests.conftest import REPOSITORY

# For the authors of optimizers, targets and tests, who write Python.
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
    "rules/schedule.py",
)
OPTIONS = option_names(cli.commands["build"]) | option_names(cli.commands["train"])
METHODS = sorted({name.rpartition(".")[2] for verb in VERBS for name in (verb.python or "").split(", ") if "_" in name})
SETTINGS = "|".join(sorted(OPTIONS))
OF_PYTHON = re.compile(
    rf"(?<!PersonalModel\.)\b(?:{'|'.join(METHODS)})\b|\b(?!read\(|mapped\(|AutoModel)\w+\(\)|StateStore|\bruntime '|Budget\(|"
    rf"\bPersonalModel\.open\b|\b(?:train|training|lora|budget)\.[a-z]|(?<![\w.'-])(?:{SETTINGS})=|"
    rf"(?<![\w.'-])(?:{'|'.join(name for name in OPTIONS if '_' in name)})\b"
)
REFERENCES = ("do", "setting", "verb")


def messages() -> Iterator[tuple[str, str]]:
    """(place, text) of each text that stands in an error of Python or of C++, without the references in it."""
    sdk = REPOSITORY / "sdk" / "bespoke"
    for path in sorted(sdk.rglob("*.py")):
        if str(path.relative_to(sdk)).startswith(NOT_FOR_USERS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in ("next_step", "expected"):
                for text in texts(node.value):
                    yield f"{path.relative_to(REPOSITORY)}:{node.value.lineno}", text
    core = REPOSITORY / "bindings" / "native" / "src"
    for path in sorted(core.rglob("*.cpp")):
        if str(path.relative_to(core)).startswith(
            ("state/runs.cpp", "state/versions.cpp")
        ):  # only their own callers meet it
            continue
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text(encoding="utf-8")):
            if re.search(r"^[A-Z][a-z]+ |\b(?:or|and) ", text):
                yield str(path.relative_to(REPOSITORY)), text


def texts(node: ast.expr) -> Iterator[str]:
    """The constants of an expression, but for a reference's own."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.BinOp):
        yield from texts(node.left)
        yield from texts(node.right)


def test_no_text_of_an_error_names_a_verb_or_a_setting_but_as_a_reference() -> None:
    found = list(messages())
    assert len(found) > 700
    assert any(place.endswith(".cpp") for place, _ in found)
    left = [f"{place}: {text}" for place, text in found if OF_PYTHON.search(text)]
    assert not left, "\n".join(left)


def test_no_reference_is_lost_in_an_f_string() -> None:
    """It would be Python's words there, and in every language."""
    lost = []
    for path in sorted((REPOSITORY / "sdk" / "bespoke").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and any(
                isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in REFERENCES
                for part in ast.walk(node)
            ):
                lost.append(f"{path.relative_to(REPOSITORY)}:{node.lineno}")
    assert not lost


@pytest.mark.parametrize(
    ("text", "python", "command"),
    [
        (
            "Continue it without them, or " + do("abandon_run") + " and train again",
            "Continue it without them, or call abandon_run() and train again",
            "Continue it without them, or run bespoke abandon and train again",
        ),
        ("Change " + setting("train.learning_rate"), "Change train.learning_rate", "Change --learning-rate"),
        (
            "Set " + setting("budget.memory_mb", 43.4) + ", shorten the sequences",
            "Set Budget(memory_mb=43.4), shorten the sequences",
            "Set --memory-mb 43.4, shorten the sequences",
        ),
        (
            do("reset_for_new_base") + ": examples are kept",
            "Call reset_for_new_base(): examples are kept",
            "In Python, call PersonalModel.reset_for_new_base: examples are kept",
        ),
        (do("forget", "id") + " first", "Call forget(id) first", "Run bespoke examples forget first"),
        ("Open it with " + verb("open"), "Open it with PersonalModel.open", "Open it with --state"),
        ("Build with " + setting("text", False), "Build with text=False", "Build with --no-text"),
        (
            "Give " + setting("tokenizer", Like("FOLDER", "DIR")),
            "Give tokenizer=FOLDER",
            "Give --tokenizer DIR",
        ),
        (
            "Map them: " + setting("fields", {"prompt": "question"}),
            "Map them: fields={'prompt': 'question'}",
            "Map them: --field prompt=question",
        ),
        (
            "Override them in " + setting("optimizers", {"mezo": Like("{...}", "")}),
            "Override them in optimizers={'mezo': {...}}",
            "Override them in --option mezo.FIELD=VALUE",
        ),
        ("Correct " + setting("fields", key="prompt"), "Correct fields['prompt']", "Correct --field prompt"),
        ("Set " + setting("clip_norm", None), "Set clip_norm=None", "Set no --clip-norm"),
        (
            "Change " + setting("train"),
            "Change train",
            "Change train",
        ),  # all settings, and not the option --train of LoRA
        (
            "Name the model's state, its method and its data",
            "Name the model's state, its method and its data",
            "Name the model's state, its method and its data",
        ),  # words stay words
    ],
)
def test_references_are_said_in_both_and_words_are_left_alone(text: str, python: str, command: str) -> None:
    error = ConfigError(setting("train.learning_rate"), got="nan", expected="a number", next_step=text)
    assert (error.subject, error.next_step) == ("train.learning_rate", python)
    on_the_line: BespokeError = on_the_command_line(error, OPTIONS)
    assert type(on_the_line) is ConfigError
    assert (on_the_line.subject, on_the_line.next_step) == ("--learning-rate", command)


def test_settings_of_a_file_keep_their_names() -> None:
    name = setting("training.learning_rate")
    error = ConfigError(name, got="nan", expected="a number", next_step="Change " + name)
    assert str(on_the_command_line(error, {"learning_rate": "--learning-rate"}, file=True)) == str(error)


@pytest.mark.parametrize(
    "id", ["{do:forget}", '{"do": "forget"}', "train.learning_rate", "memory_mb=64", "call abandon_run()", "\x1b[2J{}"]
)
def test_what_a_user_wrote_is_never_taken_for_a_reference(id: str) -> None:
    error = DataError(f"example '{id}'", got=id, expected=id, next_step=f"Rename '{id}', or " + do("forget", "id"))
    on_the_line = on_the_command_line(error, OPTIONS)
    shown = printable(id)
    assert (on_the_line.subject, on_the_line.got, on_the_line.expected) == (f"example '{shown}'", shown, shown)
    assert on_the_line.next_step == f"Rename '{shown}', or run bespoke examples forget"
