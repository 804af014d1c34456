# SPDX-License-Identifier: Apache-2.0
"""The tables of state.sqlite, and whether a database is one of ours.

Tables are STRICT and carry CHECKs, so that `quick_check` at open also finds values of the wrong kind. The text of the
schema is compared as a whole: a trigger or a view that somebody planted is a damaged database.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping

from bespoke.errors import StateError
from bespoke.state.errors import damaged, no_memory, passing

VERSION = 1
APPLICATION_ID = 0x62737001  # marks the file as ours, in SQLite's header
MAX_VALUE_BYTES = 16 * 2**20  # of one text or blob; a longer one is refused on the way in and out

AdapterShapes = Mapping[str, tuple[int, ...]]

_TABLES = """
CREATE TABLE state (
  one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, base_sha256 TEXT NOT NULL, adapter TEXT NOT NULL
) STRICT;
CREATE TABLE examples (
  key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
  split TEXT NOT NULL CHECK (split IN ('train', 'validation')), json TEXT NOT NULL,
  tokens INTEGER NOT NULL CHECK (tokens > 0), trained_tokens INTEGER NOT NULL CHECK (trained_tokens > 0),
  added_at TEXT NOT NULL
) STRICT;
CREATE TABLE example_rows (
  example INTEGER NOT NULL REFERENCES examples (key) ON DELETE CASCADE, row INTEGER NOT NULL CHECK (row >= 0),
  tokens BLOB NOT NULL, mask BLOB NOT NULL CHECK (length(tokens) = 4 * length(mask)),
  PRIMARY KEY (example, row)
) STRICT, WITHOUT ROWID;
CREATE TABLE runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, method TEXT NOT NULL, seed INTEGER NOT NULL, settings TEXT NOT NULL,
  steps INTEGER NOT NULL CHECK (steps >= 0), started_from INTEGER, parent INTEGER,
  step INTEGER NOT NULL CHECK (step >= 0), cursor TEXT NOT NULL, ended_because TEXT,
  started_at TEXT NOT NULL, ended_at TEXT
) STRICT;
CREATE TABLE run_examples (
  run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, position INTEGER NOT NULL,
  example INTEGER NOT NULL REFERENCES examples (key) ON DELETE CASCADE,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_examples_by_example ON run_examples (example);
CREATE TABLE slots (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  step INTEGER NOT NULL CHECK (step >= 0), cursor TEXT NOT NULL,
  file TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT;
CREATE TABLE journal (
  run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE, step INTEGER NOT NULL CHECK (step >= 0),
  cursor TEXT NOT NULL, recorded BLOB NOT NULL CHECK (length(recorded) % 4 = 0),
  rejected INTEGER NOT NULL CHECK (rejected IN (0, 1)), metrics TEXT NOT NULL,
  PRIMARY KEY (run, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE metrics (
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  step INTEGER NOT NULL, json TEXT NOT NULL
) STRICT;
CREATE INDEX metrics_by_run ON metrics (run, step);
CREATE TABLE versions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER, step INTEGER NOT NULL, metrics TEXT NOT NULL, source TEXT,
  file TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL CHECK (bytes >= 0), accepted_at TEXT NOT NULL
) STRICT;
"""


def is_new(connection: sqlite3.Connection) -> bool:
    """A database without tables: just made, or its creation was interrupted."""
    return connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0


def create(connection: sqlite3.Connection, base_sha256: str, adapter_shapes: AdapterShapes) -> None:
    """All tables and marks. The caller holds the transaction: a killed creation leaves an empty database."""
    for statement in _TABLES.split(";"):
        if statement.strip():
            connection.execute(statement.strip())
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    row = (1, VERSION, base_sha256, shapes_json(adapter_shapes))
    connection.execute("INSERT INTO state VALUES (?, ?, ?, ?)", row)


def check(connection: sqlite3.Connection, subject: str) -> None:
    """Refuse another version, a foreign schema, a damaged file. StateError."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        raise damaged(subject, f"a database of application {application:#x}", f"{APPLICATION_ID:#x}, bespoke's")
    if version != VERSION:
        raise _other_version(subject, version)
    if _objects(connection) != _expected_objects():
        raise damaged(subject, "other tables, indices or triggers", f"the tables of version {VERSION}")
    complaints = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)").fetchall()]
    for complaint in complaints:
        # SQLite reports a page that could not be read as if it were damaged: the code says which.
        failed = re.search(r"error code=(\d+)", complaint)
        if failed and int(failed[1]) & 0xFF == sqlite3.SQLITE_NOMEM:
            raise no_memory(subject)
        if failed and int(failed[1]) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise passing(subject, complaint[:300])
    if complaints != ["ok"]:
        raise damaged(subject, "; ".join(complaints)[:300])
    rows = connection.execute("SELECT version FROM state").fetchall()
    if rows != [(VERSION,)]:
        raise _other_version(subject, rows[0][0] if rows else None)


def check_base(connection: sqlite3.Connection, subject: str, base_sha256: str, adapter_shapes: AdapterShapes) -> None:
    """Refuse a state that belongs to another base model or another adapter. StateError."""
    stored_base, stored_shapes = connection.execute("SELECT base_sha256, adapter FROM state").fetchone()
    if stored_base != base_sha256:
        raise StateError(
            subject,
            got=f"a state of the base model {stored_base[:16]}",
            expected=f"one of {base_sha256[:16]}, the bundle's",
            next_step="Call reset_for_new_base: examples are kept and tokenized anew, adapters go",
        )
    if stored_shapes != shapes_json(adapter_shapes):
        raise StateError(
            subject,
            got="adapters of other names or shapes (another LoRA rank, for instance)",
            expected="those of the bundle",
            next_step="Call reset_for_new_base: examples are kept, adapters go",
        )


def shapes_json(adapter_shapes: AdapterShapes) -> str:
    return json.dumps({name: list(shape) for name, shape in adapter_shapes.items()}, sort_keys=True)


def _objects(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall())


def _expected_objects() -> set[tuple[object, ...]]:
    model = sqlite3.connect(":memory:", isolation_level=None)
    try:
        create(model, "", {})
        return _objects(model)
    finally:
        model.close()


def _other_version(subject: str, version: object) -> StateError:
    return StateError(
        subject,
        got=f"a state of version {version}",
        expected=f"version {VERSION}",
        next_step="Use the version of bespoke that wrote it, or delete the folder and add the examples again",
    )
