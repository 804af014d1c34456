# SPDX-License-Identifier: Apache-2.0
"""What all commands share: help, errors, progress on a terminal, plugins' commands, doctor, and the page in the docs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from bespoke.cli import cli, run
from bespoke.cli.output import print_json, progress
from bespoke.cli.page import command_line_page
from bespoke.core import find
from tests.conftest import REPOSITORY
from tests.unit.cli.commands import bespoke

VERBS = [
    "read",
    "build",
    "inspect",
    "verify",
    "pack",
    "install",
    "export-base",
    "train",
    "evaluate",
    "generate",
    "chat",
    "ui",
    "export",
    "examples",
    "versions",
    "rollback",
    "reset",
    "abandon",
    "federate",
    "plugins",
    "doctor",
    "bench",
]


def test_the_page_in_the_docs_is_what_the_commands_say() -> None:
    page = (REPOSITORY / "docs" / "reference" / "command_line.md").read_text(encoding="utf-8")
    assert page == command_line_page(), "run: python -m bespoke.cli.page > docs/reference/command_line.md"


def test_every_command_has_help() -> None:
    assert list(cli.commands) == VERBS
    for verb in VERBS:
        answer = bespoke(verb, "--help").ok()
        assert answer.out.startswith(f"Usage: bespoke {verb}")


def test_a_command_that_does_not_exist_is_a_usage_error() -> None:
    answer = bespoke("trian")
    assert (answer.code, "trian" in answer.err, answer.out) == (2, True, "")


def test_a_missing_option_is_reported_as_json_too() -> None:
    answer = bespoke("train", "--format", "json", "some.bundle")
    assert answer.code == 2
    assert "--state" in answer.json["error"]["got"]
    assert answer.json["error"]["next_step"] == "Read bespoke train --help"


def test_errors_have_no_traceback_unless_asked_for() -> None:
    answer = bespoke("inspect", "nosuch.bundle")
    assert (answer.code, answer.err.count("\n"), answer.out) == (8, 1, "")
    assert answer.err.startswith("bespoke: nosuch.bundle")
    debugged = bespoke("--debug", "inspect", "nosuch.bundle")
    assert (debugged.code, "Traceback" in debugged.err) == (8, True)


def test_json_has_null_for_numbers_that_are_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("inf"), "b": [float("nan"), 1.5], "c": {"d": (1, None)}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": {"d": [1, None]}}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for stderr, drawn in ((_Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress() as tell:
            tell("plans", 1, 2)
            tell("training: loss 3.2", 1, 0)
        assert ("plans" in stderr.getvalue() and "training: loss 3.2" in stderr.getvalue()) is drawn


def plugin(folder: Path, name: str, source: str) -> None:
    """A distribution as pip leaves it: a module and the entry point that names it."""
    (folder / f"{name.replace('-', '_')}.py").write_text(source)
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[bespoke]\n{name} = {name.replace('-', '_')}\n")


GREET = """
import click
from bespoke.hookspecs import hookimpl

@click.command()
@click.argument("name")
def greet(name):
    "Greet somebody."
    click.echo(f"Hello {name}")

@click.command()
def train():
    "Not ours."

@hookimpl
def register_commands(register):
    register(greet)
    register(train)
"""


def test_a_plugin_adds_a_command_but_cannot_replace_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path, "command-greet", GREET)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert bespoke("greet", "you").ok().out == "Hello you\n"
    listing = bespoke("--help").ok().out
    assert "Greet somebody" in listing
    assert "Not ours" not in listing


def test_a_broken_plugin_is_reported_and_hurts_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path, "command-broken", "import no_such_module_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert bespoke("--help").code == 0
    found = {entry["name"]: entry for entry in bespoke("plugins", "--format", "json").ok().json["plugins"]}
    broken = found["command-broken"]
    assert (broken["package"], broken["version"], broken["provides"]) == ("command-broken", "1.2", [])
    assert "no_such_module_anywhere" in broken["problem"]
    assert "pip uninstall command-broken" in broken["problem"]
    assert (found["mesp"]["provides"], found["mesp"]["problem"]) == (["optimizer mesp"], None)
    assert "no_such_module_anywhere" in bespoke("plugins").ok().out


def test_doctor_tells_what_is_missing_and_what_that_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        f["name"]: f for f in bespoke("doctor", "--state", tmp_path / "s", "--format", "json").ok().json["findings"]
    }
    assert {
        "python",
        "torch",
        "transformers",
        "peft",
        "matplotlib",
        "memory limit",
        "sqlite",
        "plugins",
    } <= found.keys()
    assert (found["torch"]["status"], found["sqlite"]["status"]) == ("ok", "ok")
    assert str(tmp_path / "s") in found["sqlite"]["found"]
    assert "a bundle is code" in found["bundles"]["found"]
    assert (REPOSITORY / "docs" / "how_to" / "sign_pin_and_ship.md").is_file()
    assert "docs/how_to/sign_pin_and_ship.md" in found["bundles"]["found"]
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    monkeypatch.setitem(sys.modules, "torch", None)  # what an import of a package that is not there meets
    answer = bespoke("doctor")
    assert answer.code == (0 if find().path else 3)  # the device core trains without torch
    assert "bespoke-sdk[torch]" in answer.out
    assert "compiled for the device core train, evaluate and answer without it" in " ".join(answer.out.split())


def test_doctor_says_where_no_state_can_live(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = bespoke("doctor", "--state", tmp_path / "file", "--format", "json")
    sqlite = next(finding for finding in answer.json["findings"] if finding["name"] == "sqlite")
    assert (answer.code, sqlite["status"]) == (3, "missing")
    assert "No state can be kept there" in sqlite["means"]


def test_interrupting_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bespoke.plugins.installed", interrupt)
    assert run(["plugins"]) == 130
