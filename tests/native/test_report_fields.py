# SPDX-License-Identifier: Apache-2.0
"""The core fills every field of the SDK's reports: one that is only declared there does not compile."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

REPORTS = ("train_report", "memory_report", "evaluation")


@pytest.mark.slow
def test_a_field_that_the_core_does_not_fill_does_not_compile(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    bindings = REPOSITORY / "bindings"
    shutil.copytree(bindings / "native" / "src", tmp_path / "native" / "src")
    shutil.copytree(bindings / "schema", tmp_path / "schema")
    for report in REPORTS:
        with (tmp_path / "schema" / f"{report}.inc").open("a") as fields:
            fields.write(f"BESPOKE_FIELD(unfilled_of_{report})\n")
    folder = tmp_path / "native" / "src"
    headers = (folder, bindings / "native" / "third_party" / "json" / "single_include")
    command = [
        compiler,
        "-std=c++17",
        "-fsyntax-only",
        *(f"-I{each}" for each in headers),
        str(folder / "train" / "report.cpp"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if " error: " in line]
    assert {report for report in REPORTS if any(f"unfilled_of_{report}" in line for line in errors)} == set(REPORTS), (
        done.stderr
    )
