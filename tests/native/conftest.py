# SPDX-License-Identifier: Apache-2.0
"""The device core, compiled once for all tests: `native_build` is the folder with bespoke-core, native_tests and the labs."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "bindings" / "native"


def compile_core(name: str, *defines: str) -> Path:
    """A build of the core in build/<name>; what has not changed is not compiled again. Processes wait for each other."""
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", "-G", "Ninja", "-S", str(SOURCE), "-B", str(folder), f"-DPython3_EXECUTABLE={_python()}", "-DBESPOKE_TESTS=ON", *defines],
            ["cmake", "--build", str(folder)],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return folder


def _python() -> str:
    import sys

    return sys.executable


@pytest.fixture(scope="session")
def native_build() -> Path:
    if shutil.which("cmake") is None or shutil.which("ninja") is None:
        pytest.skip("cmake or ninja is not installed")
    return compile_core("native")
