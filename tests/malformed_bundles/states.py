# SPDX-License-Identifier: Apache-2.0
"""A small state, and a copy of it to be damaged."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.native.state.states import fill, open_state, summary


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "alice"
    fill(folder)
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "alice"))


def read_all(folder: Path) -> Any:
    """Everything that can be read from a state."""
    with open_state(folder) as store:
        for version in store.accepted():
            if version.run_id is not None:
                store.run(version.run_id)
        return summary(store)


def the_slot(folder: Path) -> Path:
    return max(folder.glob("slot_*"))


def edit(folder: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    """Change the database as somebody would who means harm: checks and types off."""
    connection = sqlite3.connect(folder / "state.sqlite", isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        connection.execute(statement, values if "?" in statement else ())
    connection.close()


DEEP = "[" * 100_000
