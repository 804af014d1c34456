# SPDX-License-Identifier: Apache-2.0
"""What databases of a state folder have in common: a lock of their process, transactions that wait for the disk, a version."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bespoke.errors import StateError, StateLocked

__all__ = ["BUSY_SECONDS", "locked", "prepared", "transaction", "unusable"]

BUSY_SECONDS = 30.0


def locked(file: Path, who: str) -> int:
    """A lock of a folder's file that ends with the process. `who`: what has it otherwise, such as "a server"."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StateLocked(
            str(file.parent),
            got=f"{who} that runs already",
            expected="none",
            next_step="Stop it, or name another folder",
        ) from None
    return descriptor


def prepared(database: sqlite3.Connection, folder: Path, version: int, schema: str) -> bool:
    """Makes the tables of a new database, within a transaction. Returns whether it was new."""
    (found,) = database.execute("PRAGMA user_version").fetchone()
    if found not in (0, version):
        raise unusable(folder, f"state of version {found}", f"version {version}")
    if found == 0:
        for statement in schema.split(";\n"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {version}")
    return bool(found == 0)


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Makes all changes of its body or none. They are on the disk when the body has ended."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def unusable(folder: Path, got: str, expected: str) -> StateError:
    """The error for a state that cannot be used."""
    return StateError(str(folder), got=got, expected=expected, next_step="Name another folder for the state")
