# SPDX-License-Identifier: Apache-2.0
"""The device core, compiled once for all tests: `native_build` is the folder with bespoke-core; tests/ in it has native_tests and
the labs."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "bindings" / "native"

# What ThreadSanitizer passes over: libraries of ExecuTorch, which are not compiled for it.
RACES = Path(__file__).with_name("executorch_races.txt")


def compile_core(name: str, *defines: str, targets: Sequence[str] = (), tests: bool = True) -> Path:
    """A build of the core in build/<name>, or of some of its targets; what has not changed is not compiled again. Processes wait
    for each other.

    build/core is where installing compiled it (pyproject.toml).
    """
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    generator = [] if (folder / "CMakeCache.txt").exists() else ["-G", "Ninja"]
    options = [f"-DPython3_EXECUTABLE={sys.executable}", f"-DBESPOKE_TESTS={'ON' if tests else 'OFF'}"]
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", *generator, "-S", str(SOURCE), "-B", str(folder), *options, *defines],
            ["cmake", "--build", str(folder), *(["--target", *targets] if targets else [])],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return folder


def sanitized_core(sanitizer: str = "address,undefined", *defines: str, targets: Sequence[str] = ()) -> Path:
    """`compile_core` with sanitizers, one build for all tests. Compiling takes longer than they do: our C++ is optimized less."""
    name = "_".join(["sanitized", sanitizer.split(",")[0], *(["bare"] if defines else [])])
    fast_to_compile = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -g1", "-DCMAKE_C_FLAGS=-O1")
    return compile_core(name, f"-DBESPOKE_SANITIZE={sanitizer}", *defines, *fast_to_compile, targets=targets)


@pytest.fixture(scope="session")
def native_build() -> Path:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    return compile_core("core")
