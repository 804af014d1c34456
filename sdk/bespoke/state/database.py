# SPDX-License-Identifier: Apache-2.0
"""The connection to state.sqlite: its settings, its transactions, its errors. One per store, shared by its threads."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bespoke.errors import StateError
from bespoke.state import schema
from bespoke.state.errors import damaged, from_os_error, from_sqlite_error, no_memory

FILE = "state.sqlite"
BUSY_SECONDS = 30.0
_LEAST_SQLITE = (3, 37, 0)  # STRICT tables


class Database:
    """state.sqlite, opened so that a committed transaction survives a power cut and deleted text is overwritten."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.subject = str(self.path)
        self._guard = threading.RLock()
        self._depth = 0
        self.example_counts: tuple[int, int, int] | None = None  # what `examples.add` knows of what is committed
        if sqlite3.sqlite_version_info < _LEAST_SQLITE:
            raise StateError(
                "SQLite",
                got=sqlite3.sqlite_version,
                expected=f"{'.'.join(map(str, _LEAST_SQLITE))} or newer",
                next_step="Use a Python that is built with a newer SQLite",
            )
        _make(self.path)
        uri = f"file:{quote(os.fsencode(self.path))}?mode=rw"  # SQLite itself makes nothing
        with self._errors():
            # Threads of one process share the connection, one at a time, by _guard.
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * schema.MAX_VALUE_BYTES)

    def prepare(
        self, base_sha256: str, adapter_shapes: schema.AdapterShapes, *, may_be_new: bool, any_base: bool = False
    ) -> None:
        """Create the tables of a new database, check those of an old one. The caller holds the lock on files."""
        with self._guard, self._errors():
            execute = self._connection.execute
            execute("PRAGMA trusted_schema = OFF")
            execute("PRAGMA cell_size_check = ON")
            execute("PRAGMA foreign_keys = ON")
            execute("PRAGMA temp_store = MEMORY")  # what is deleted must not survive in a temporary file
            new = schema.is_new(self._connection)
            if not (new and may_be_new):
                schema.check(self._connection, self.subject)
            self._durable()
            if new:
                with self.transaction():
                    schema.create(self._connection, base_sha256, adapter_shapes)
            elif not any_base:
                schema.check_base(self._connection, self.subject, base_sha256, adapter_shapes)

    def _durable(self) -> None:
        mode = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StateError(
                self.subject,
                got=f"journal mode '{mode}'",
                expected="'wal'",
                next_step="Put the state folder on a local disk: some network file systems have no shared memory",
            )
        for pragma, value in (("synchronous", 2), ("secure_delete", 1)):  # 2 is FULL
            self._connection.execute(f"PRAGMA {pragma} = {value}").fetchall()
            got = self._connection.execute(f"PRAGMA {pragma}").fetchone()[0]
            if got != value:
                raise damaged(self.subject, f"{pragma} {got}", f"{pragma} {value}")
        # On Apple a plain fsync leaves data in the drive's cache; elsewhere these two mean nothing.
        self._connection.execute("PRAGMA fullfsync = ON")
        self._connection.execute("PRAGMA checkpoint_fullfsync = ON")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, on disk when left. Nested ones belong to the outermost."""
        with self._guard, self._errors():
            if self._depth:
                yield self._connection
                return
            self._depth += 1
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self.example_counts = None
                raise
            finally:
                self._depth -= 1
                if self._connection.in_transaction:  # not committed: an error is on its way out
                    self._connection.execute("ROLLBACK")

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one statement, which sees one moment of the database."""
        with self._guard, self._errors():
            return self._connection.execute(sql, parameters).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads that see the same moment."""
        with self._guard, self._errors():
            if self._depth:
                yield
                return
            self._depth += 1
            try:
                self._connection.execute("BEGIN")
                yield
            finally:
                self._depth -= 1
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def scrub(self) -> None:
        """Leave no byte of what was deleted: rewrite the database, then empty the write-ahead log.

        secure_delete zeroes a deleted cell, but copies of it from when pages were balanced stay in the free part of
        other pages; only a rewrite removes those. StateError where another process keeps the log in use.
        """
        with self._guard, self._errors():
            self._connection.execute("VACUUM")
            self.empty_log(strict=True)

    def empty_log(self, *, strict: bool = False) -> None:
        """Move the write-ahead log into the database and truncate it; where others use it, later (or StateError)."""
        with self._guard, self._errors():
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy and strict:
            raise StateError(
                self.subject,
                got="another process that reads the write-ahead log",
                expected="to empty the log, which still holds what was deleted",
                next_step="End that process and call forget again",
            )

    def close(self) -> None:
        with self._guard:
            self._connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise from_sqlite_error(error, self.subject) from error
        except MemoryError as error:  # what the module makes of SQLITE_NOMEM
            raise no_memory(self.subject) from error


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces. ValueError, TypeError or RecursionError for what is no JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def internal_json(value: dict[str, Any], subject: str) -> str:
    """JSON of a cursor, of settings or metrics (a loss may be NaN). StateError for what is no JSON."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(
            subject, got=str(error), expected="numbers, strings, lists and dicts", next_step=f"Mend the {subject}"
        ) from error
    if len(text) > schema.MAX_VALUE_BYTES:
        raise StateError(
            subject,
            got=f"{len(text)} bytes",
            expected=f"at most {schema.MAX_VALUE_BYTES}",
            next_step=f"Store less in the {subject}",
        )
    return text


def stored_json(text: str, subject: str) -> dict[str, Any]:
    """What `internal_json` or `canonical_json` wrote. StateError where the stored text is not a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(subject, f"text that is no JSON ({type(error).__name__})", "a JSON object") from error
    if not isinstance(value, dict):
        raise damaged(subject, f"a JSON {type(value).__name__}", "a JSON object")
    return value


def _make(path: Path) -> None:
    """Make the file, with its own permissions, where there is none; refuse links, folders and devices in its place and its log's.

    The caller holds the lock on files. What is there is looked at by name and never opened here: closing any descriptor of
    a file drops all POSIX locks that the process has on it (SQLite, "How To Corrupt", 2.2), those of its other connections
    too; another process then takes itself for the last one and deletes the log that they write to. A file that O_EXCL made
    has no connection yet.
    """
    for name in (path.name + "-wal", path.name + "-shm", path.name + "-journal", path.name):
        try:
            mode = os.lstat(path.with_name(name)).st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            raise from_os_error(error, str(path)) from error
        if not stat.S_ISREG(mode):
            raise damaged(str(path.with_name(name)), "a link or something else that is no file", "a plain file")
        if name == path.name:
            return
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise from_os_error(error, str(path)) from error
