# SPDX-License-Identifier: Apache-2.0
"""Where the tests' own code lies: what several tests share stands in a module of its own, never in a file of tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

TESTS = REPOSITORY / "tests"
FILES = sorted(TESTS.rglob("*.py"))
IN_THE_ROOT = {"__init__.py", "conftest.py"}


def imports_of_tests(source: str) -> Iterator[str]:
    """Modules named test_* that this code imports, also in the text of a program that it starts."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = re.findall(r"(?:from|import) (tests\.[\w.]+)", node.value)
        yield from (name for name in names if is_of_a_test(name))


def is_of_a_test(name: str) -> bool:
    return any(part.startswith("test_") for part in name.split("."))


@pytest.mark.parametrize(
    "source",
    [
        "from tests.unit.plan.test_verify import Sample",
        "from tests.unit.plan import drafts, test_verify",
        "from . import test_verify",
        "from .test_verify import Sample",
        "import tests.unit.plan.test_verify as verify",
        "def later():\n    from tests.unit.plan.test_verify import Sample",
        "code = 'import sys; from tests.unit.plan.test_verify import Sample'",
    ],
)
def test_an_import_from_a_test_is_seen(source: str) -> None:
    assert len(list(imports_of_tests(source))) == 1


def test_no_test_imports_from_a_test() -> None:
    imports = {
        str(path.relative_to(TESTS)): list(imports_of_tests(path.read_text(encoding="utf-8")))
        for path in FILES
        if path != Path(__file__)  # whose texts above are such imports
    }
    assert {name: modules for name, modules in imports.items() if modules} == {}


def test_what_tests_share_lies_in_a_folder() -> None:
    loose = {path.name for path in TESTS.glob("*.py")} - IN_THE_ROOT
    assert loose == set(), "move it to tests/support, or to the folder that uses it"


def test_no_unit_test_compiles_the_core() -> None:
    """What does is driven from tests/native: `native_build`, `compile_core` and `sanitized_core` stand in its conftest."""
    compiling = [
        str(path.relative_to(TESTS))
        for path in (TESTS / "unit").rglob("*.py")
        if path != Path(__file__) and "tests.native.conftest" in path.read_text(encoding="utf-8")
    ]
    assert compiling == []


def test_each_package_of_the_sdk_has_a_folder_of_unit_tests() -> None:
    packages = {path.parent.name for path in (REPOSITORY / "sdk" / "bespoke").glob("*/__init__.py")}
    elsewhere = {"testing"}  # the suites that plugins run: tests/contract
    assert packages - {path.name for path in (TESTS / "unit").iterdir()} == elsewhere
