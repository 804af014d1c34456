# SPDX-License-Identifier: Apache-2.0
"""Plugins are found by name, one module is imported for each, and a broken one hurts only itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bespoke import plugins
from bespoke.cli import run
from bespoke.errors import ConfigError, PluginError
from bespoke.personalizer import Personalizer
from tests.unit.plugins.installing import install

BROKEN = "raise RuntimeError('its vendor library is missing')\n"
LEAVES = "import sys\nsys.exit(3)\n"
HOOKLESS = """
from bespoke.hookspecs import hookimpl

@hookimpl
def register_optimisers(register):
    pass
"""
HALF = """
from bespoke.hookspecs import hookimpl

class Half:
    name = "half"

@hookimpl
def register_optimizers(register):
    register(Half())
"""
PARTS = """
from pydantic import Field
from bespoke import contracts
from bespoke.contracts import Costs, Settings, TORCH_COSTS, hookimpl

class NothingToSet(Settings):
    pass

class Unset(Settings):
    rate: float

class Optimizer:
    name, promises, Options = "part", None, NothingToSet
    def train_step(self, b, model, options):
        pass

class Target(contracts.Target):
    name, costs, Options = 'part', TORCH_COSTS, NothingToSet
    def lower(self, graph, folder, options, baked=None):
        pass
    def open(self, path, options):
        pass

made = {made}

@hookimpl
def register_optimizers(register):
    if isinstance(made, Optimizer):
        register(made)

@hookimpl
def register_targets(register):
    if isinstance(made, Target):
        register(made)
"""
COMMAND = """
import click
from bespoke.hookspecs import hookimpl

@click.command()
def greet():
    click.echo("good day")

@hookimpl
def register_commands(register):
    register(greet)
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"broken": BROKEN, "leaves": LEAVES, "hookless": HOOKLESS, "half": HALF}
    modules = {f"outsider_{name}": source for name, source in names.items()}
    install(tmp_path, "outsiders", {name: f"outsider_{name}" for name in names}, modules)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_broken_plugin_is_reported_and_hurts_nothing_else(broken: None) -> None:
    found = {plugin.name: plugin for plugin in plugins.installed()}
    for name, said in {
        "broken": "RuntimeError on import: its vendor library is missing",
        "leaves": "SystemExit on import",
        "hookless": "register_optimisers",
        "half": "no attribute promises, Options, train_step",
    }.items():
        assert found[name].provides == ()
        assert said in (found[name].problem or "")
        assert "outsiders" in (found[name].problem or "")
    assert found["mesp"].provides == ("optimizer mesp",)
    assert all(plugin.problem is None for name, plugin in found.items() if plugin.package != "outsiders")
    assert plugins.get("optimizer", "mesp").name == "mesp"


def part(kind: str, change: str) -> str:
    return PARTS.replace("{made}", f"type('Changed', ({kind},), dict({change}))()")


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("Optimizer", "", None),
        ("Target", "", None),
        ("Optimizer", "name=7", "name = 7; expected letters, digits"),
        ("Optimizer", "name='a/b'", "name = 'a/b'"),
        ("Target", "name=''", "name = an empty text"),
        ("Optimizer", "promises='gradients'", "promises = 'gradients'; expected 'exact_gradients', "),
        ("Optimizer", "promises='two_sided_loss_difference'", "derived from bespoke.methods.ZerothOrderOptions"),
        ("Optimizer", "train_step=None", "train_step = None; expected a method"),
        ("Optimizer", "Options=dict", "a subclass of bespoke.contracts.Settings"),
        ("Optimizer", "Options=Unset", "options without a default: optimizers.part.rate"),
        ("Target", "Options=Unset", "options without a default: targets.part.rate"),
        ("Target", "costs=4_000_000", "costs = 4000000; expected bespoke.contracts.Costs"),
        ("Target", "costs=Costs(constant_bytes=-1)", "bytes from 0 up"),
    ],
)
def test_discovery_takes_what_the_contract_suites_take(
    kind: str, change: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"outsider_{tmp_path.name}"
    install(tmp_path, "parts", {"part": module}, {module: part(kind, change)})
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = [plugin for plugin in plugins.installed() if plugin.package == "parts"]
    if said is None:
        assert (found.provides, found.problem) == ((f"{kind.lower()} part",), None)
    else:
        assert found.provides == ()
        assert said in (found.problem or "")
        assert f"{kind.lower()} " in (found.problem or "")


@pytest.mark.parametrize(
    ("there", "instead", "said"),
    [
        ("name, costs, Options = 'part', TORCH_COSTS,", "name, Options = 'part',", "got no attribute costs"),
        ("def open(", "def opens(", "got one of lower and open"),
        (
            "(contracts.Target)",
            "",
            "got a Target; expected an instance of a class derived from bespoke.contracts.Target",
        ),
        ("TORCH_COSTS, NothingToSet", "TORCH_COSTS, NothingToSet; ready = None", "got ready = None; expected a method"),
    ],
)
def test_half_a_target_is_refused(
    there: str, instead: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert there in PARTS
    module = f"outsider_{tmp_path.name}"
    install(tmp_path, "parts", {"part": module}, {module: PARTS.replace("{made}", "Target()").replace(there, instead)})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=rf"target 'part' of package 'parts': {said}"):
        plugins.get("target", "part")


def test_the_command_lists_a_broken_plugin_with_its_problem(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["plugins"]}
    assert "vendor library is missing" in rows["broken"]["problem"]
    assert rows["mezo"]["problem"] is None
    assert run(["plugins"]) == 0
    assert "pip uninstall outsiders" in capsys.readouterr().out
    assert run(["--help"]) == 0


def test_asking_for_a_broken_plugin_tells_why(broken: None) -> None:
    with pytest.raises(PluginError, match=r"'broken' of package 'outsiders'.*vendor library is missing.*pip uninstall"):
        plugins.get("optimizer", "broken")
    with pytest.raises(ConfigError, match="vendor library is missing"):
        Personalizer("model", "broken")


def test_asking_for_one_plugin_imports_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"outsider_one": HALF, "outsider_other": BROKEN}
    install(tmp_path, "outsiders", {"one": "outsider_one", "other": "outsider_other"}, modules)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError):
        plugins.get("optimizer", "one")
    assert "outsider_one" in sys.modules
    assert "outsider_other" not in sys.modules


def test_an_unknown_name_is_answered_with_the_installed_ones() -> None:
    with pytest.raises(PluginError, match=r"optimizer 'mezzo'.*Did you mean 'mezo'") as caught:
        plugins.get("optimizer", "mezzo")
    assert caught.value.expected == (
        "one of the installed optimizers: fzoo, hizoo, mebp, mesp, mezo, momentum_fa, prge, simpo, windowed, zgr, zo_signsgd"
    )
    assert caught.value.exit_code == 7


def test_an_unknown_name_is_answered_with_those_of_its_kind() -> None:
    with pytest.raises(PluginError) as caught:
        plugins.get("target", "mesq")
    assert caught.value.expected.startswith("one of the installed targets: ")
    assert not {"mebp", "mesp", "mezo"} & set(caught.value.expected.replace(",", "").split())
    assert "mesp" not in caught.value.next_step


def test_a_name_of_another_kind_is_not_taken() -> None:
    with pytest.raises(PluginError, match="target 'mesp'"):
        plugins.get("target", "mesp")


def test_two_packages_that_provide_one_name_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "imposter", {"mesp": "outsider_mesp"}, {"outsider_mesp": HALF})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=r"optimizer 'mesp'.*bespoke-sdk.*imposter"):
        plugins.get("optimizer", "mesp")
    assert plugins.get("optimizer", "mezo").name == "mezo"


def test_a_plugin_adds_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    install(tmp_path, "greeter", {"command-greet": "outsider_greet"}, {"outsider_greet": COMMAND})
    monkeypatch.syspath_prepend(tmp_path)
    assert [command.name for command in plugins.commands()] == ["greet"]
    assert run(["greet"]) == 0
    assert capsys.readouterr().out == "good day\n"


TWO = """
from bespoke import plugins
from bespoke.contracts import hookimpl

Kind = type(plugins.get("optimizer", "mezo"))

class One(Kind):
    name = "one_of_two"

class Other(Kind):
    name = "other_of_two"

@hookimpl
def register_optimizers(register):
    register(One())
    register(Other())
"""


def test_a_module_may_register_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bespoke.testing.target import check_target

    install(tmp_path, "twins", {"one_of_two": "outsider_twins"}, {"outsider_twins": TWO})
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = [plugin for plugin in plugins.installed() if plugin.package == "twins"]
    assert found.provides == ("optimizer one_of_two", "optimizer other_of_two")
    for name in ("one_of_two", "other_of_two"):
        assert plugins.get("optimizer", name).name == name
        assert Personalizer("model", name).request.methods[0].name == name
    assert check_target(plugins.get("target", "listing"), optimizers=["other_of_two"]).lowered > 0


def test_two_packages_that_register_one_further_name_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "twins", {"one_of_two": "outsider_twins"}, {"outsider_twins": TWO})
    install(tmp_path, "more-twins", {"more": "outsider_more"}, {"outsider_more": TWO})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=r"'other_of_two'.*more-twins.*twins"):
        plugins.get("optimizer", "other_of_two")
    assert plugins.get("optimizer", "mesp").name == "mesp"
