# SPDX-License-Identifier: Apache-2.0
"""The library that kills at a chosen call, compiled once, and places for states."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: kills inside a commit are done by a preloaded library")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = REPOSITORY / "tests" / "unit" / "state" / "faults.c"
    subprocess.run([compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@contextmanager
def new_place() -> Iterator[Path]:
    """In memory where that is possible: flushes to a disk would test the disk."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def place() -> Iterator[Path]:
    with new_place() as folder:
        yield folder
