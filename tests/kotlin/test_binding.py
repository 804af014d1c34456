# SPDX-License-Identifier: Apache-2.0
"""The Kotlin binding on a JVM: its own tests and the code of the docs, by Maven, on the installed core; `make test-kotlin`."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.kotlin.maven import BINDING, COMPILED, mvn

pytestmark = pytest.mark.kotlin


def test_the_tests_of_the_binding_pass(prepared: Path, compiled: int) -> None:
    assert compiled >= 8, "blocks of the docs"
    expected = {"core": 39, "android": 63, "delivery": 38, "federation": 35, "../../sample_apps/android": 23}
    reports = {module: BINDING / module / "target" / "surefire-reports" for module in expected}
    for folder in reports.values():
        shutil.rmtree(folder, ignore_errors=True)
    mvn("test", *COMPILED, f"-Dbespoke.native={prepared / 'native'}", f"-Dbespoke.fixture={prepared}")
    for module, at_least in expected.items():
        suites = [ElementTree.parse(path).getroot() for path in reports[module].glob("TEST-*.xml")]
        assert sum(int(suite.get("tests", 0)) for suite in suites) >= at_least, module
        assert all(suite.get("skipped") == "0" for suite in suites), module
