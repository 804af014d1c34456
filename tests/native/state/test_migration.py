# SPDX-License-Identifier: Apache-2.0
"""A state of an older version is brought to this one when it is opened, and says what it said.

state_of_version_N.zip is what `states.fill` wrote with the last store of version N; that of version 1 was in Python. In the one of
version 2 there are two losses, and the hash of its text rules is written in by hand. That of version 3 is one of version 4 whose
added column was dropped: its tables have the texts of version 3, by which the store knows it.
"""

from __future__ import annotations

import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.native.state.states import OLD, fill, open_state
from tests.support.reading import read_state


@pytest.fixture(params=OLD)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(OLD[request.param]) as archive:
        archive.extractall(tmp_path / "old")
    return tmp_path / "old"


def tables(folder: Path) -> set[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "state.sqlite")) as connection:
        return set(connection.execute("SELECT type, name, sql FROM sqlite_schema"))


def test_an_old_state_is_brought_to_this_version(old: Path, tmp_path: Path) -> None:
    before = read_state(old)  # its cursors are none that a trainer writes: the reader says so, before and after
    open_state(old).close()
    after = read_state(old)
    assert after["broken"] == before["broken"]
    assert {what: after["digests"][what] for what in before["digests"]} == before["digests"]
    fill(tmp_path / "new")
    assert tables(old) == tables(tmp_path / "new")


def test_an_old_state_with_other_tables_is_refused_and_left_as_it_is(old: Path) -> None:
    with closing(sqlite3.connect(old / "state.sqlite")) as connection:
        connection.execute("ALTER TABLE state ADD COLUMN another TEXT")
    before = tables(old)
    with pytest.raises(Exception, match="other tables"):
        open_state(old).close()
    assert tables(old) == before
