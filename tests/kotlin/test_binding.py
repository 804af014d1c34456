# SPDX-License-Identifier: Apache-2.0
"""The Kotlin binding on a JVM: its own tests and the code of the docs, by Maven, on the installed core; `make test-kotlin`."""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.kotlin.prepare import build_bundle, build_native, what_python_does, write_pages

pytestmark = pytest.mark.kotlin
BINDING = REPOSITORY / "bindings" / "kotlin"


@pytest.fixture(scope="module")
def prepared(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [tool for tool in ("javac", "mvn", "cmake") if shutil.which(tool) is None]
    if missing:
        reason = f"the Kotlin binding is not tested without {', '.join(missing)}"
        assert os.environ.get("BESPOKE_REQUIRE_KOTLIN") != "1", reason
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("kotlin")
    build_native(folder)
    what_python_does(build_bundle(stories, folder), folder)
    return folder


def test_the_tests_of_the_binding_pass(prepared: Path) -> None:
    assert write_pages(BINDING / "core" / "target" / "pages") >= 4
    reports = BINDING / "core" / "target" / "surefire-reports"
    shutil.rmtree(reports, ignore_errors=True)
    properties = [f"-Dbespoke.native={prepared / 'native'}", f"-Dbespoke.fixture={prepared}"]
    done = subprocess.run(["mvn", "-B", "-q", "test", *properties], cwd=BINDING, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    suites = [ElementTree.parse(path).getroot() for path in reports.glob("TEST-*.xml")]
    assert sum(int(suite.get("tests", 0)) for suite in suites) >= 10
    assert all(suite.get("skipped") == "0" for suite in suites)
