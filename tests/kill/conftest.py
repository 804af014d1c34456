# SPDX-License-Identifier: Apache-2.0
"""The library that kills at a chosen call, compiled once, and places for states."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.faults_library import compile_faults


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_faults(tmp_path_factory.mktemp("faults"))


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
