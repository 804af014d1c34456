# SPDX-License-Identifier: Apache-2.0
"""What importing each part brings in. Which parts may know of which: `tools/check_layers.py`, run by test_layers.py."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

SDK = REPOSITORY / "sdk" / "bespoke"

BUILD_ONLY = {
    "transformers",
    "peft",
    "executorch",
    "jinja2",
    "matplotlib",
    "cryptography",
    "huggingface_hub",
    "bespoke_plugins",
}
HEAVY = BUILD_ONLY | {"torch", "numpy", "pydantic"}

# Runs a program, then tells which modules it has imported and whether it opened a socket.
PROBE = """
import json, sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(event) if event.startswith("socket.") else None)
{program}
print(json.dumps({{"modules": sorted(sys.modules), "sockets": opened}}), file=sys.stderr)
"""


def probe(program: str) -> tuple[set[str], list[str]]:
    """Full names of the modules that `program` left imported, and audit events of sockets."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(program=program)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stderr.splitlines()[-1])
    return set(found["modules"]), found["sockets"]


def packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


COMMAND = "from bespoke.cli import run; assert run({!r}) == 0"


@pytest.mark.parametrize(
    "program",
    [
        "import bespoke",
        COMMAND.format(["--help"]),
        COMMAND.format(["--version"]),
        COMMAND.format(["build", "--help"]),
        COMMAND.format(["train", "--help"]),
    ],
)
def test_start_up_is_light_and_opens_no_socket(program: str) -> None:
    modules, sockets = probe(program)
    assert sockets == []
    assert packages(modules) & HEAVY == set()


def test_the_probe_sees_a_socket() -> None:
    assert probe("import socket; socket.socket()")[1] != []


def test_a_settings_error_is_reported_without_torch() -> None:
    program = 'from bespoke.cli import run; assert run(["build", "--config", "nosuch.toml"]) == 2'
    assert "torch" not in packages(probe(program)[0])


def test_bundles_and_states_are_read_and_written_without_torch() -> None:
    names = [
        f"bespoke.{folder}" + ("" if file.stem == "__init__" else f".{file.stem}")
        for folder in ("format", "rules", "plan", "bundle", "state", "data")
        for file in sorted((SDK / folder).glob("*.py"))
        if not file.stem.startswith("__main")
    ]
    assert len(names) > 30
    imports = "; ".join(f"import {name}" for name in names)
    modules, sockets = probe(imports)
    assert packages(modules) & (BUILD_ONLY | {"torch"}) == set()
    assert {module for module in modules if module.startswith(("bespoke.graph", "bespoke.reference"))} == set()
    assert sockets == []


def test_a_model_is_opened_without_torch() -> None:
    modules, sockets = probe("import bespoke.personal_model, bespoke.core")
    assert packages(modules) & (BUILD_ONLY | {"torch"}) == set()
    assert sockets == []


def test_training_knows_neither_the_compiler_nor_its_plugins() -> None:
    modules, sockets = probe("import bespoke.personal_model, bespoke.core.in_process, bespoke.golden.prover")
    ours = {module for module in modules if module.startswith("bespoke.")}
    assert "torch" in packages(modules)
    assert packages(modules) & BUILD_ONLY == set()
    compiler = ("bespoke.graph", "bespoke.methods", "bespoke.compiler", "bespoke.personalizer", "bespoke.contracts")
    assert {name for name in ours if name.startswith(compiler)} == set()
    assert "bespoke.plugins" not in ours
    assert "bespoke.model.spec" not in ours
    assert sockets == []


def within(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def test_what_is_optional_is_imported_only_where_it_is_used() -> None:
    """At the top of a module it would break everything that imports the module."""
    optional = BUILD_ONLY - {"bespoke_plugins"}
    wrong = set()
    for path in SDK.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong |= {f"{path.name}: {name}" for name in names if within(name, optional)}
    assert wrong == set()


def test_a_missing_torch_is_reported_with_the_extra_that_brings_it() -> None:
    program = """
sys.modules["torch"] = None
import bespoke
import bespoke.personal_model
from bespoke.errors import MissingDependency
try:
    with MissingDependency.unless_there("Answering", "torch", "torch"):
        import bespoke.reference.generate
except bespoke.BespokeError as error:
    assert error.exit_code == 3 and "bespoke-sdk[torch]" in error.next_step, error
else:
    raise SystemExit("no error")
"""
    probe(program)


def test_our_plugins_without_torch_name_the_extra_and_are_not_called_broken() -> None:
    program = """
sys.modules["torch"] = None
from bespoke import BespokeError, plugins
try:
    plugins.get("optimizer", "mezo")
except BespokeError as error:
    assert error.exit_code == 3 and error.next_step == "pip install 'bespoke-sdk[build]'", error
else:
    raise SystemExit("no error")
problems = [plugin.problem for plugin in plugins.installed() if plugin.problem and plugin.package == "bespoke-sdk"]
assert problems and not any("uninstall" in problem for problem in problems), problems
"""
    probe(program)
