# SPDX-License-Identifier: Apache-2.0
"""What hostile files are made from, and a watch over what is opened while they are read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke.bundle.signature import generate_key, sign_bundle
from tests.unit.bundle.example import program, write_example

_opened: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open":
        _opened.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else str(arguments[0]))


@pytest.fixture(scope="session", autouse=True)
def _watching() -> None:
    sys.addaudithook(_watch)  # cannot be removed, so it is switched by `_opened`


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Names of all files that Python opens during the test, as they were given to the system."""
    global _opened
    _opened = []
    yield _opened
    _opened = None


@pytest.fixture(scope="session")
def graph() -> bytes:
    """A traced graph of two operators."""
    return program()


@pytest.fixture(scope="session")
def keys() -> tuple[bytes, bytes]:
    return generate_key()


@pytest.fixture
def bundle(tmp_path: Path, graph: bytes, keys: tuple[bytes, bytes]) -> Path:
    """A sound, signed bundle in a folder that holds nothing else."""
    folder = write_example(tmp_path / "here" / "a.bundle", graph=graph)
    sign_bundle(folder, keys[0])
    return folder
