# SPDX-License-Identifier: Apache-2.0
"""The one table of verbs in the docs, held against what is there in Python, on the command line, in C, Kotlin and Swift."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

import bespoke
from bespoke import Personalizer, PersonalModel
from bespoke.cli import cli
from bespoke.conversation import Conversation
from bespoke.examples import Examples
from bespoke.participation import Participation
from tests.conftest import REPOSITORY
from tests.support import c_header


def column(number: int) -> set[str]:
    """Names in backticks in a column of the table, as the page in the docs has it."""
    page = (REPOSITORY / "docs" / "reference" / "command_line.md").read_text(encoding="utf-8")
    section = page.partition("## What can be done")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")]
    assert len(rows) > 20
    assert all(len(row) == 6 for row in rows)
    return set(re.findall(r"`([^`]+)`", " ".join(row[number] for row in rows)))


def public(kind: type) -> set[str]:
    """Its methods, those of its bases too."""
    members = inspect.getmembers(kind)
    return {name for name, member in members if not name.startswith("_") and not isinstance(member, property)}


def commands(group: click.Group, path: str = "bespoke") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def test_the_table_has_every_verb_of_python_and_no_other() -> None:
    there = {f"{kind.__name__}.{name}" for kind in (PersonalModel, Personalizer) for name in public(kind)}
    there |= {f"examples.{name}" for name in public(Examples)}
    there |= {f"federation.{name}" for name in public(Participation)}
    there |= {f"conversation.{name}" for name in (*public(Conversation), "__next__")}
    there |= {f"bespoke.{name}" for name in bespoke.__all__ if name[0].islower()}
    assert column(1) - {"train(stop=...)", "bespoke.__version__", "PersonalModel.authenticated"} == there


def test_the_table_has_every_command_and_no_other() -> None:
    named = {re.sub(r" --.*", "", name) for name in column(2)} - {"--state", "Ctrl-C", "SIGTERM", "bespoke"}
    assert named == set(commands(cli))


def test_the_table_has_every_function_of_the_header_and_no_other() -> None:
    functions = c_header.functions()
    assert len(functions) > 6
    assert column(3) == {name for name in functions if not name.endswith("_free")}


def test_the_table_has_every_public_member_in_kotlin_and_no_other() -> None:
    apart = (".examples", ".federation", ".progress")
    assert column(4) - {"Job.cancel"} == {name for name in kotlin_members() if not name.endswith(apart)}


def kotlin_members() -> Iterator[str]:
    """`PersonalModel.train`, `examples.add`, ...: functions and properties of the classes that an app calls."""
    modules = REPOSITORY / "bindings" / "kotlin"
    sources = modules / "core" / "src" / "main" / "kotlin" / "dev" / "bespoke"
    files = ("PersonalModel.kt", "Conversation.kt", "Participation.kt")
    text = "".join((sources / name).read_text(encoding="utf-8") for name in files)
    owners = {
        "PersonalModel": "PersonalModel",
        "Examples": "examples",
        "Participation": "federation",
        "Conversation": "conversation",
    }
    for owner, name in owners.items():
        body = text.partition(f"\nclass {owner} ")[2].partition("\n}\n")[0]
        members = re.findall(r"^ {4}(?:override |suspend )*(?:fun|val) (\w+)", body, re.MULTILINE)
        of_companion = re.findall(r"^ {8}(?:suspend fun (\w+)|val (\w+): \w+ get\(\))", body, re.MULTILINE)
        yield from (f"{name}.{member}" for member in (*members, *map("".join, of_companion)))
    together = (
        modules / "federation" / "src" / "main" / "kotlin" / "dev" / "bespoke" / "federation" / "LearnTogether.kt"
    )
    yield from re.findall(r"^(?:suspend )?fun (\w+)", together.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_table_has_every_public_member_in_swift_and_no_other() -> None:
    assert column(5) - {"Task.cancel"} == {
        name for name in swift_members() if not name.endswith((".examples", ".federation"))
    }


def swift_members() -> Iterator[str]:
    """`PersonalModel.train`, `examples.add`, ...: functions and properties of the types that an app calls."""
    sources = REPOSITORY / "bindings" / "swift" / "Sources"
    for file, opening, name in (
        ("Bespoke/PersonalModel", " PersonalModel: Sendable", "PersonalModel"),
        ("Bespoke/Examples", " Examples: Sendable", "examples"),
        ("Bespoke/Federation", " Federation: Sendable", "federation"),
        ("Bespoke/Conversation", " Conversation: Sendable", "conversation"),
        ("BespokeFederation/LearningTogether", "extension PersonalModel", "PersonalModel"),
    ):
        text = (sources / f"{file}.swift").read_text(encoding="utf-8")
        body = text.partition(f"{opening} {{\n")[2].partition("\n}\n")[0]
        members = re.findall(r"^ {4}public (?:static )?(?:func|var|let) (\w+)", body, re.MULTILINE)
        yield from (f"{name}.{member}" for member in members)
