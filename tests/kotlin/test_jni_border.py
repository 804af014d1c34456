# SPDX-License-Identifier: Apache-2.0
"""The border between Kotlin and the C API, alone: no JVM runs here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.kotlin


def test_what_a_call_gave_is_freed_where_the_apps_progress_has_thrown(tmp_path: Path) -> None:
    compiler, javac = shutil.which("c++"), shutil.which("javac")
    if compiler is None or javac is None:
        assert os.environ.get("BESPOKE_REQUIRE_KOTLIN") != "1"
        pytest.skip("needs a C++ compiler and a JDK")
    java = Path(javac).resolve().parents[1] / "include"
    bindings = REPOSITORY / "bindings"
    headers = (
        java,
        java / "linux",
        bindings / "native" / "include",
        bindings / "kotlin" / "core" / "src" / "main" / "cpp",
    )
    program = tmp_path / "jni_border"
    source = Path(__file__).with_name("jni_border_test.cpp")
    subprocess.run([compiler, "-std=c++17", *(f"-I{folder}" for folder in headers), source, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == "2 thrown, 0 texts and 0 errors left\n"
