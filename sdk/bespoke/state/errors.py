# SPDX-License-Identifier: Apache-2.0
"""What SQLite and the system say, turned into the SDK's errors: a full disk is not damage, damage is not a lock."""

from __future__ import annotations

import errno
import sqlite3

from bespoke.errors import DiskFull, StateError

_FULL_ERRNO = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# SQLite says FULL only for ENOSPC on its main write path; a quota and the shared-memory file come as these.
_FULL_NAMES = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}
_DENIED_PREFIXES = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")


def disk_full(subject: str, got: str) -> DiskFull:
    return DiskFull(
        subject,
        got=got,
        expected="room on the disk for the commit",
        next_step="Free some space and call again: what was committed before is intact",
    )


def damaged(subject: str, got: str, expected: str = "what this version of bespoke writes") -> StateError:
    """Something in the state folder that no crash of ours can leave behind."""
    return StateError(
        subject,
        got=got,
        expected=expected,
        next_step="Restore the folder from a copy, or delete it and add the examples again",
    )


def from_os_error(error: OSError, subject: str) -> StateError:
    """DiskFull where that is the cause, else StateError."""
    if error.errno in _FULL_ERRNO:
        return disk_full(subject, error.strerror or "a full disk")
    return StateError(
        subject,
        got=error.strerror or type(error).__name__,
        expected="a folder of its own that this process may read and write",
        next_step="Check that the path is a writable folder on a local disk",
    )


def from_sqlite_error(error: sqlite3.Error, subject: str) -> StateError:
    """DiskFull, busy, denied or damaged, by SQLite's extended result code."""
    if isinstance(error, sqlite3.ProgrammingError):
        return StateError(
            subject, got="a state that was closed", expected="an open one", next_step="Open it again with PersonalModel.open"
        )
    name = str(getattr(error, "sqlite_errorname", None) or "")
    if name in _FULL_NAMES:
        return disk_full(subject, f"{name}: {error}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StateError(
            subject,
            got=f"{name}: {error}",
            expected="other processes to hold the database for moments only",
            next_step="End the process that keeps it open in a transaction, then try again",
        )
    if name.startswith(_DENIED_PREFIXES):
        return StateError(
            subject,
            got=f"{name}: {error}",
            expected="a database that this process may open and write",
            next_step="Check the permissions of the state folder",
        )
    return damaged(subject, f"{name or type(error).__name__}: {error}")
