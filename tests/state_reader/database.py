# SPDX-License-Identifier: Apache-2.0
"""state.sqlite as it lies on disk: copied, opened, and compared with the tables that the format's page lists.

The original is never opened by SQLite here. That would take locks, play back and, at the end, empty and delete its log: what a
killed process left would be mended before it was looked at, and no later process would show whether it mends it itself. Nor may a
process that has the state open read these files by other means (closing any descriptor drops its POSIX locks): this is a process
of its own. The copy is of one moment where nobody writes meanwhile, which is how tests use it; a file that changes under the copy
is copied again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from findings import Findings

FILE = "state.sqlite"
PARTS = (FILE, FILE + "-wal", FILE + "-shm")
APPLICATION_ID, VERSIONS = 0x62737001, (1, 2, 3, 4, 5, 6)

# table -> its columns in order: (name, type, may be NULL, place in the primary key)
Columns = list[tuple[str, str, bool, int]]


def _columns(text: str) -> Columns:
    """`id INTEGER key, run INTEGER?, file TEXT`: written as on the page."""
    found: Columns = []
    for entry in text.split(", "):
        name, kind, *key = entry.split()
        found.append((name, kind.rstrip("?"), kind.endswith("?"), 1 + sum(1 for one in found if one[3]) if key else 0))
    return found


TABLES: dict[str, Columns] = {
    name: _columns(text)
    for name, text in {
        "state": "one INTEGER key, version INTEGER, base_sha256 TEXT, adapter TEXT, text TEXT?",
        "examples": (
            "key INTEGER key, id TEXT, split TEXT, json TEXT, tokens INTEGER, trained_tokens INTEGER, added_at TEXT, use TEXT"
        ),
        "example_rows": (
            "example INTEGER key, row INTEGER key, tokens BLOB, mask BLOB, rejected_tokens BLOB?, rejected_mask BLOB?"
        ),
        "runs": (
            "id INTEGER key, method TEXT, seed INTEGER, settings TEXT, steps INTEGER, started_from INTEGER?, parent INTEGER?, "
            "step INTEGER, cursor TEXT, ended_because TEXT?, started_at TEXT, ended_at TEXT?, bytes_written INTEGER"
        ),
        "run_examples": "run INTEGER key, position INTEGER key, example INTEGER",
        "slots": "id INTEGER key, run INTEGER, step INTEGER, cursor TEXT, file TEXT, sha256 TEXT, bytes INTEGER",
        "journal": "run INTEGER key, step INTEGER key, cursor TEXT, recorded BLOB, rejected INTEGER, metrics TEXT",
        "metrics": "id INTEGER key, run INTEGER, step INTEGER, json TEXT",
        "versions": (
            "id INTEGER key, run INTEGER?, step INTEGER, metrics TEXT, source TEXT?, file TEXT, sha256 TEXT, bytes INTEGER, "
            "accepted_at TEXT, text_rules TEXT?"
        ),
        "losses": "version INTEGER key, rows TEXT key, loss REAL",
        "judgements": "run INTEGER key, step INTEGER key, loss REAL",
        "best_steps": "run INTEGER key, step INTEGER, file TEXT, sha256 TEXT, bytes INTEGER",
        "answers": "run INTEGER key, step INTEGER key, prompt TEXT key, tokens BLOB",
        "federations": (
            "task TEXT key, joined_at TEXT?, spent REAL, round INTEGER, differs INTEGER, adapter TEXT?, file TEXT?, sha256 TEXT?, "
            "bytes INTEGER?, document TEXT?, done INTEGER, wait_seconds REAL, heard_at INTEGER"
        ),
        "rounds": "task TEXT key, round INTEGER key, measured_at TEXT",
        "outbox": "task TEXT key, round INTEGER key, numbers TEXT",
        "round_examples": "task TEXT key, round INTEGER key, example INTEGER key",
    }.items()
}
NEW_IN = {  # tables and columns
    2: {"text", "use", "rejected_tokens", "rejected_mask", "losses"},
    3: {"judgements", "best_steps"},
    4: {"bytes_written", "text_rules"},
    5: {"answers"},
    6: {"federations", "rounds", "outbox", "round_examples"},
}
INDICES = {
    "run_examples_by_example": "run_examples",
    "metrics_by_run": "metrics",
    "round_examples_by_example": "round_examples",
}
REFERENCES = {
    "example_rows": {("example", "examples", "key")},
    "run_examples": {("example", "examples", "key"), ("run", "runs", "id")},
    "slots": {("run", "runs", "id")},
    "journal": {("run", "runs", "id")},
    "metrics": {("run", "runs", "id")},
    "judgements": {("run", "runs", "id")},
    "best_steps": {("run", "runs", "id")},
    "answers": {("run", "runs", "id")},
    "rounds": {("task", "federations", "task")},
    "outbox": {("task", "rounds", "task"), ("round", "rounds", "round")},
    "round_examples": {("example", "examples", "key"), ("task", "rounds", "task"), ("round", "rounds", "round")},
}
AUTOINCREMENT = {"examples": "key", "runs": "id", "slots": "id", "versions": "id"}
_OF_SQLITE = "sqlite_"  # what it makes itself: sqlite_sequence, indices of UNIQUE


@contextmanager
def opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a copy. Raises OSError where there is no database, sqlite3.Error where it cannot be read."""
    with tempfile.TemporaryDirectory(prefix="state-reader-") as place:
        _copy(folder, Path(place))
        with closing(sqlite3.connect(Path(place) / FILE, isolation_level=None)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            yield connection


def _copy(folder: Path, place: Path) -> None:
    for _ in range(50):
        before = _stamps(folder)
        for name in PARTS:
            (place / name).unlink(missing_ok=True)
            if name in before:
                shutil.copyfile(folder / name, place / name)
        if before == _stamps(folder):
            return
        time.sleep(0.02)
    raise OSError(f"{folder / FILE} changes all the time: end the process that writes to it")


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    stamps = {}
    for name in PARTS:
        if os.path.lexists(folder / name):
            found = os.lstat(folder / name)
            stamps[name] = (found.st_size, found.st_mtime_ns)
    return stamps


def check_database(connection: sqlite3.Connection, findings: Findings) -> bool:
    """Whether it is sound and its tables are those of the page, so that rows can be read."""
    sound = True

    def check(holds: object, promise: str, where: str, got: object) -> None:
        nonlocal sound
        sound &= findings.check(holds, promise, where, got)

    for name, expected in (
        ("application_id", (APPLICATION_ID,)),
        ("user_version", VERSIONS),
        ("journal_mode", ("wal",)),
    ):
        got = connection.execute(f"PRAGMA {name}").fetchone()[0]
        check(got in expected, "version", name, got)
    complaints = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
    check(complaints == ["ok"], "integrity", FILE, "; ".join(map(str, complaints)))
    _check_objects(connection, check)
    if not sound:
        return False
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        findings.check(False, "references", f"{table}, row {row}", f"a row of {parent} that is not there")
    for table, column in AUTOINCREMENT.items():
        largest = connection.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()[0]
        given = connection.execute(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?", (table,)
        ).fetchone()[0]
        findings.check(given >= largest, "numbers", table, f"{largest} was given, {given} is noted as the last one")
    return True


def version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _tables(version: int) -> dict[str, Columns]:
    later = {name for since, names in NEW_IN.items() if since > version for name in names}
    return {
        name: [column for column in columns if column[0] not in later]
        for name, columns in TABLES.items()
        if name not in later
    }


def _check_objects(connection: sqlite3.Connection, check: object) -> None:
    assert callable(check)
    tables = _tables(version_of(connection))
    indices = {index for index, table in INDICES.items() if table in tables}
    strict = {row[1]: row[5] for row in connection.execute("PRAGMA table_list")}
    found: dict[str, set[str]] = {"table": set(), "index": set(), "trigger": set(), "view": set()}
    for kind, name in connection.execute("SELECT type, name FROM sqlite_schema"):
        if not name.startswith(_OF_SQLITE):
            found[kind].add(name)
    check(
        found["table"] == set(tables),
        "tables",
        FILE,
        f"tables {sorted(found['table'] ^ set(tables))} too many or missing",
    )
    check(
        found["index"] == indices,
        "tables",
        FILE,
        f"indices {sorted(found['index'] ^ indices)} too many or missing",
    )
    check(
        not found["trigger"] | found["view"],
        "tables",
        FILE,
        f"triggers or views {sorted(found['trigger'] | found['view'])}",
    )
    for table in found["table"] & set(tables):
        columns = [
            (name, kind, not required and not place, place)
            for _, name, kind, required, _, place, hidden in connection.execute(f"PRAGMA table_xinfo({table})")
        ]
        check(columns == tables[table], "tables", table, columns)
        check(strict.get(table) == 1, "tables", table, "a table that is not STRICT")
        references = {
            (column, other, target) if on_delete == "CASCADE" else (column, other, on_delete)
            for _, _, other, column, target, _, on_delete, _ in connection.execute(f"PRAGMA foreign_key_list({table})")
        }
        check(references == REFERENCES.get(table, set()), "tables", table, f"references {sorted(references)}")
