# SPDX-License-Identifier: Apache-2.0
"""The state reader disturbs nothing, compares two states by what they say, and finds what is left of forgotten words and tokens."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import struct
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.reading import READER, broken_promises, read_state
from tests.unit.state_reader.damage import sql

pytestmark = pytest.mark.xdist_group("tiny")

WORDS = "the harbour master keeps his spare keys under the third lobster pot from the left"
TOKENS = [7, 300, 1, 90210, 5, 5, 12, 44, 1, 2]


@pytest.fixture
def state(real_states: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(real_states / "mesp", tmp_path / "state"))


def opened(state: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(state / "state.sqlite", isolation_level=None))


def stamps(state: Path) -> dict[str, object]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in state.iterdir()}


def test_what_a_killed_process_left_in_the_log_is_read_and_left_there(state: Path, tmp_path: Path) -> None:
    before = read_state(state)
    with opened(state) as connection:
        connection.execute("UPDATE runs SET seed = 77 WHERE id = 1")
        killed = Path(shutil.copytree(state, tmp_path / "killed"))
    stamped = stamps(killed)
    assert len(stamped["state.sqlite-wal"][0]) > 0  # type: ignore[index]
    found = read_state(killed)
    assert found["broken"] == []
    assert {table for table, one in found["digests"].items() if one != before["digests"][table]} == {"runs"}
    assert stamps(killed) == stamped


def test_a_process_that_holds_every_lock_is_not_waited_for(state: Path) -> None:
    with opened(state) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert read_state(state)["broken"] == []


def test_states_that_say_the_same_have_one_digest(state: Path) -> None:
    before = read_state(state)
    sql(
        "UPDATE examples SET added_at = 'then'",
        "UPDATE runs SET started_at = 'then'",
        "UPDATE slots SET id = id + 7",
        "UPDATE sqlite_sequence SET seq = seq + 7 WHERE name = 'slots'",
        "VACUUM",
    )(state)
    assert read_state(state)["digest"] == before["digest"]


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("examples", "UPDATE examples SET id = 'other' WHERE key = 1"),
        ("example_rows", "UPDATE example_rows SET mask = zeroblob(length(mask)) WHERE example = 1"),
        ("runs", "UPDATE runs SET cursor = '{}' WHERE id = 2"),
        ("run_examples", "DELETE FROM run_examples WHERE run = 1 AND position = 0"),
        ("slots", "UPDATE slots SET sha256 = 'ab' WHERE step = 5"),
        ("metrics", "DELETE FROM metrics WHERE step = 5"),
        ("versions", "DELETE FROM versions WHERE id = 1"),
        ("state", "UPDATE state SET base_sha256 = 'ab'"),
    ],
)
def test_states_that_say_something_else_have_not(state: Path, table: str, change: str) -> None:
    before = read_state(state)["digests"]
    sql(change)(state)
    after = read_state(state)["digests"]
    assert table in {name for name in before if before[name] != after[name]}


def in_a_free_page(state: Path) -> None:
    blob = struct.pack(f"<{len(TOKENS)}i", *TOKENS)
    with opened(state) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("INSERT INTO metrics (id, run, step, json) VALUES (999, 2, 5, ?)", (WORDS * 100,))
        connection.execute("INSERT INTO journal VALUES (2, 999, '{}', ?, 0, '{}')", (blob * 200,))
        connection.execute("DELETE FROM metrics WHERE id = 999")
        connection.execute("DELETE FROM journal WHERE step = 999")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def in_the_log(state: Path) -> None:
    with opened(state) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("INSERT INTO metrics (id, run, step, json) VALUES (999, 2, 5, ?)", (WORDS,))
        connection.execute(
            "INSERT INTO journal VALUES (2, 999, '{}', ?, 0, '{}')", (struct.pack(f"<{len(TOKENS)}i", *TOKENS),)
        )
        connection.execute("DELETE FROM metrics WHERE id = 999")
        connection.execute("DELETE FROM journal WHERE step = 999")
        shutil.copytree(state, state.with_name("killed"))
    shutil.rmtree(state)
    state.with_name("killed").rename(state)


def in_the_scratch_file(state: Path) -> None:
    (state / "scratch").touch(0o600)
    (state / "scratch").write_bytes(bytes(3) + WORDS[20:60].encode() + struct.pack("<8i", *TOKENS[1:9]))


@pytest.mark.parametrize("leave", [in_a_free_page, in_the_log, in_the_scratch_file])
@pytest.mark.parametrize("forgotten", [WORDS, json.dumps(TOKENS)], ids=["words", "tokens"])
def test_what_is_left_of_something_forgotten_is_found(
    state: Path, leave: Callable[[Path], None], forgotten: str
) -> None:
    assert broken_promises(state, forgotten=[forgotten]) == set()
    leave(state)
    assert broken_promises(state) == set()
    assert broken_promises(state, forgotten=["nobody ever said this", forgotten]) == {"forgotten"}


def test_what_a_kept_example_says_too_is_not_forgotten(state: Path) -> None:
    with opened(state) as connection:
        (kept,) = connection.execute("SELECT json FROM examples WHERE key = 2").fetchone()
    assert broken_promises(state, forgotten=[kept, json.dumps(json.loads(kept)["tokens"])]) == set()
    sql("UPDATE examples SET json = '{\"tokens\":[]}'", "UPDATE example_rows SET tokens = zeroblob(4 * length(mask))")(
        state
    )
    with opened(state) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (state / "scratch").touch(0o600)
    (state / "scratch").write_text(kept)
    assert "forgotten" in broken_promises(state, forgotten=[kept])


def test_the_page_lists_the_tables_that_a_real_state_has(state: Path) -> None:
    page = (REPOSITORY / "docs" / "reference" / "state_format.md").read_text(encoding="utf-8")
    listed = dict(
        re.findall(r"^\| `(\w+)` \| ((?:\w+ (?:INTEGER|TEXT|BLOB|REAL)\??(?: key)?(?:, )?)+) \|", page, re.MULTILINE)
    )
    real = {}
    with opened(state) as connection:
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ):
            columns = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
            real[table] = ", ".join(
                f"{name} {kind}{'' if required or place else '?'}{' key' if place else ''}"
                for _, name, kind, required, _, place, _ in columns
            )
        assert hex(connection.execute("PRAGMA application_id").fetchone()[0]) in page
        assert f"State format {connection.execute('PRAGMA user_version').fetchone()[0]}\n" in page
    assert listed == real


def test_the_reader_needs_the_standard_library_alone() -> None:
    files = list(READER.glob("*.py"))
    imported = {
        name for file in files for name in re.findall(r"^(?:from|import) (\w+)", file.read_text(), re.MULTILINE)
    }
    assert imported - {file.stem for file in files} <= sys.stdlib_module_names
