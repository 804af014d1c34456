# SPDX-License-Identifier: Apache-2.0
"""Plugins stand alone: any of them can be taken away, the SDK names none of them, and the example knows what the docs say."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SDK = REPOSITORY / "sdk" / "bespoke"
EXAMPLE = REPOSITORY / "tests" / "example_plugin" / "src"
BUILT_IN = REPOSITORY / "plugins"
WHOLE = (
    "bespoke.contracts",
    "bespoke.graph",
    "bespoke.methods",
    "bespoke.ops",
    "bespoke.testing",
)  # all names documented
IN_PART = ("bespoke.errors",)

# Makes plugins unimportable, as if their files were deleted.
DELETED = """
import sys, tempfile
from importlib.abc import MetaPathFinder
from importlib.metadata import entry_points
from pathlib import Path

class Deleted(MetaPathFinder):
    modules = set()
    def find_spec(self, name, path=None, target=None):
        if name in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Deleted())
entries = {entry.name: entry for entry in entry_points(group="bespoke")}
everything = {entry.value for entry in entries.values()}

from bespoke import plugins
"""

# Plans a step with each optimizer, and compiles a graph for each target, while no other plugin can be imported.
ALONE = """
from bespoke.testing.rig import Case, planned
from bespoke.testing.tiny import shared_tracer

kinds = {provided.split()[1]: provided.split()[0] for plugin in plugins.installed() for provided in plugin.provides}
for name in sorted(set(entries) - set(sys.argv[1:]), key=lambda name: kinds[name]):  # optimizers first: they make graphs
    Deleted.modules = everything - {entries[name].value}
    for module in everything:
        sys.modules.pop(module, None)
    broken = {plugin.name for plugin in plugins.installed() if plugin.problem}
    assert broken == set(entries) - {name}, broken
    plugin = plugins.get(kinds[name], name)
    if kinds[name] == "optimizer":
        planned(plugin, plugin.Options(), Case.of("plain", 7, 2))
    elif plugin.compiles:
        graph = next(iter(shared_tracer().graphs.values()))
        with tempfile.TemporaryDirectory() as folder:
            assert plugin.lower(graph, Path(folder), plugin.Options()).path.is_file()
    print(name)
"""

# The whole way with a method and a target from outside, while the built-in plugins cannot be imported.
OUTSIDERS = """
from bespoke import Lora, PersonalModel, Personalizer, Training
from bespoke.cli import run

Deleted.modules = {value for value in everything if value.startswith("bespoke_plugins")}
folder = Path(sys.argv[2])
training = Training(learning_rate=1e-3, sequence_lengths=(16,), batch_size=2, steps=4, general_share=0)
personalizer = Personalizer(sys.argv[1], {"zo_signsgd": {"queries": 2}}, "listing", lora=Lora(rank=2), training=training)
bundle = personalizer.build(folder / "outsiders.bundle")
assert len(list((bundle / "graphs" / "listing").glob("*.txt"))) > 10
with PersonalModel.open(bundle, folder / "state") as model:
    for number in range(6):
        model.examples.add({"text": f"Once upon a time there were {number} little cats who liked to play in the big park."})
    report = model.train(run_steps=4)
    assert report.steps == 4, report
assert run(["verify", str(bundle)]) == 0
"""


def run(program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", DELETED + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SLOW_TO_IMPORT = ("coreml", "executorch")
NAMES = {
    "cuda",
    "fzoo",
    "hizoo",
    "listing",
    "mebp",
    "mesp",
    "mezo",
    "mlx",
    "momentum_fa",
    "prge",
    "simpo",
    "torch",
    "windowed",
    "zgr",
    "zo_signsgd",
}


@pytest.mark.slow
def test_a_plugin_works_while_all_others_are_gone() -> None:
    assert set(run(ALONE, *SLOW_TO_IMPORT).split()) == NAMES


@pytest.mark.slow
def test_every_plugin_works_while_all_others_are_gone() -> None:
    assert set(run(ALONE).split()) >= {*NAMES, *SLOW_TO_IMPORT}


@pytest.mark.slow
def test_a_bundle_is_built_and_trained_by_outsiders_alone(stories: Path, tmp_path: Path) -> None:
    run(OUTSIDERS, stories, tmp_path)


def test_tests_that_need_one_plugin_are_the_only_ones_that_name_its_module() -> None:
    """A plugin is asked for by name; nobody but its own package imports its file."""
    importing = re.compile(r"^\s*(?:from|import) (?:bespoke_plugins|bespoke_example)", re.MULTILINE)
    found = {
        path.relative_to(REPOSITORY).as_posix()
        for folder in ("sdk", "tests", "sample_apps", "tools")
        for path in (REPOSITORY / folder).rglob("*.py")
        if importing.search(path.read_text(encoding="utf-8"))
    }
    own = (
        "tests/apple/",
        "tests/qnn/",
        "tests/example_plugin/tests/",
        "tests/unit/targets/",
        "tests/unit/exports/test_forward_only.py",  # the step that ExecuTorch's writer makes a program of
        "tests/native/test_forward_only.py",  # and the app in C++ that runs it
    )  # tests of one plugin's insides
    assert {path for path in found if not path.startswith(own)} == set()


# Where a name cannot be done without: what a user gets who names nothing, and examples in help texts.
# The core was compiled with an engine, whose target and libraries are its own. Torch runs on a GPU for the target of that name.
# Formats of exported adapters are called as what reads them, and those of model folders as what wrote them.
MAY_NAME = {
    "model/folder_kind.py",
    "rules/records.py",
    "personal_model.py",
    "cli/answering.py",
    "cli/output.py",
    "core/own_process.py",
    "core/finding.py",
    "core/torch_engine.py",
    "reference/device.py",
    "reference/torch_settings.py",
    "personalizer.py",
    "cli/building.py",
    "cli/page.py",
    "cli/settings.py",
    "doctor.py",
}


def test_the_sdk_names_no_plugin_and_no_vendor() -> None:
    names = re.compile(r"\b(mebp|mesp|mezo|prge|zgr|zo_signsgd|executorch|coreml|coremltools|mlx)\b|['\"]cuda['\"]")
    found = {}
    for path in SDK.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        named = [line.strip() for line in lines if names.search(line) and "torch.device" not in line]
        if named and path.relative_to(SDK).as_posix() not in MAY_NAME:
            found[path.relative_to(SDK).as_posix()] = named
    assert found == {}


# ---- documented names ------------------------------------------------------------------------------------------------------


def documented() -> dict[str, set[str]]:
    """Module -> names in the tables of the how-to page."""
    page = (REPOSITORY / "docs" / "how_to" / "write_an_optimizer.md").read_text(encoding="utf-8")
    names: dict[str, set[str]] = {}
    for section in page.split("\n### ")[1:]:
        heading, _, body = section.partition("\n")
        rows = re.findall(r"^\| (`.*?) \|", body, re.MULTILINE)
        names[heading.strip()] = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    return names


def test_the_names_in_the_docs_are_the_public_names_of_the_code() -> None:
    names = documented()
    assert set(names) == {*WHOLE, *IN_PART}
    for module in WHOLE:
        assert names[module] == set(importlib.import_module(module).__all__), module
    for module in IN_PART:
        assert names[module]
        assert {name for name in names[module] if not hasattr(importlib.import_module(module), name)} == set(), module


def imported(folder: Path) -> dict[str, set[str]]:
    """What the files below a folder import of bespoke, `module.name` -> the files; a module imported whole as itself."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "bespoke":
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.partition(".")[0] == "bespoke"]
            for name in names:
                found.setdefault(name, set()).add(path.relative_to(folder).as_posix())
    return found


# What else is imported, and where alone. A target opens its programs with the core that it was compiled for, or an interpreter.
ENGINE = {"bespoke_plugins/targets/cuda/engine.py"}
TORCH = {"bespoke_plugins/targets/torch.py"}
ATTENTION = {"bespoke_plugins/targets/executorch/attention.py"}  # recognises a function by tracing it
EXCEPTIONS = {
    "bespoke.core.engine_table.Artifact": ENGINE,
    "bespoke.core.torch_engine.TorchEngine": ENGINE | TORCH,
    "bespoke.core.torch_engine.memory_may_lack": ENGINE,
    "bespoke.core.torch_engine.view_of": ENGINE,
    "bespoke.core.library.load": {"bespoke_plugins/targets/executorch/run.py"},
    "bespoke.graph.trace.Tracer": ATTENTION,
    "bespoke.graph.tree.flatten": ATTENTION,
    "bespoke.model.layers.attention_tile": ATTENTION,
}


@pytest.mark.parametrize(("folder", "exceptions"), [(EXAMPLE, {}), (BUILT_IN, EXCEPTIONS)], ids=["example", "built-in"])
def test_plugins_import_only_documented_names(folder: Path, exceptions: dict[str, set[str]]) -> None:
    names = {f"{module}.{name}" for module, listed in documented().items() for name in listed}
    found = imported(folder)
    assert len(set(found) & names) > 8
    assert {name: files for name, files in found.items() if name not in names} == exceptions


def test_a_method_is_one_short_file() -> None:
    folder = REPOSITORY / "plugins" / "bespoke_plugins" / "optimizers"
    for path in [*folder.glob("[a-z]*.py"), EXAMPLE / "bespoke_example" / "zo_signsgd.py"]:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 150, path
        assert (
            "arXiv" in text.split('"""')[1] or "appendix" in text.split('"""')[1] or "ICLR" in text.split('"""')[1]
        ), path
