# SPDX-License-Identifier: Apache-2.0
"""What a developer of the core runs without Python: `ctest`, whose checks of the C API have a bundle of their own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bespoke.bundle.reader import read_bundle
from bespoke.golden.prover import verify_bundle
from tests.native.c_border import CHECKS
from tests.native.checked_in_bundle import BUNDLE


def test_the_tests_that_need_no_python_pass(native_build: Path) -> None:
    if shutil.which("ctest") is None:
        pytest.skip("ctest is not installed")
    command = ["ctest", "--test-dir", native_build, "--output-on-failure", "--parallel", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert f"out of {len(CHECKS) + 1}" in done.stdout  # and native_tests


def test_the_checked_in_bundle_is_one_of_today() -> None:
    """Run tests/native/checked_in_bundle.py again where it is not."""
    with read_bundle(BUNDLE) as opened:
        assert {check.what for check in verify_bundle(opened).checks} > {"files"}
