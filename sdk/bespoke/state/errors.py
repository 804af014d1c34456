# SPDX-License-Identifier: Apache-2.0
"""What SQLite and the system say, turned into the SDK's errors: a full disk is not damage, damage is not a lock.

Only what stays when it is tried again is called damage, since the way out of damage is to delete the folder.
"""

from __future__ import annotations

import errno
import sqlite3

from bespoke.errors import BespokeError, BudgetExceeded, DiskFull, StateError

_FULL_ERRNO = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# SQLite says FULL only for ENOSPC on its main write path; a quota and the shared-memory file come as these.
_FULL_NAMES = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}
_DENIED_PREFIXES = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")
_BUSY_PREFIXES = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_NO_MEMORY_NAMES = {"SQLITE_NOMEM", "SQLITE_IOERR_NOMEM"}
# A call of the system that failed, or one that was broken off: it may succeed the next time.
_PASSING_PREFIXES = ("SQLITE_IOERR", "SQLITE_INTERRUPT", "SQLITE_ABORT", "SQLITE_SCHEMA", "SQLITE_NOLFS")
# Of those, what is read and is not what was written.
_LASTING_NAMES = {"SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_DATA", "SQLITE_IOERR_CORRUPTFS"}
# Of a file that the database names: it is gone, or something else stands in its place.
_GONE_ERRNO = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR}


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


def no_memory(subject: str) -> BudgetExceeded:
    return BudgetExceeded(
        subject,
        got="no room for an allocation",
        expected="room within the limit that the system sets",
        next_step="Free some memory and call again: what was committed before is intact",
    )


def passing(subject: str, got: str) -> StateError:
    """A failure of the system that says nothing about what is stored."""
    return StateError(
        subject,
        got=got,
        expected="a disk that can be read and written",
        next_step="Call again: what was committed before is intact. If it stays, look at the disk and the system's log",
    )


def from_read_error(error: OSError, subject: str) -> BespokeError:
    """Of a file that the database names: damage where it is gone, else what the system says."""
    if error.errno in _GONE_ERRNO:
        return damaged(subject, error.strerror or "no file", "the file that the database names")
    return from_os_error(error, subject)


def from_os_error(error: OSError, subject: str) -> BespokeError:
    """DiskFull, BudgetExceeded for no memory, else StateError."""
    if error.errno in _FULL_ERRNO:
        return disk_full(subject, error.strerror or "a full disk")
    if error.errno == errno.ENOMEM:
        return no_memory(subject)
    if error.errno in (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.EAGAIN):
        return passing(subject, error.strerror or type(error).__name__)
    return StateError(
        subject,
        got=error.strerror or type(error).__name__,
        expected="a folder of its own that this process may read and write",
        next_step="Check that the path is a writable folder on a local disk",
    )


def from_sqlite_error(error: sqlite3.Error, subject: str) -> BespokeError:
    """DiskFull, no memory, busy, denied, passing or damaged, by SQLite's extended result code."""
    if isinstance(error, sqlite3.ProgrammingError):
        return StateError(
            subject, got="a state that was closed", expected="an open one", next_step="Open it again with PersonalModel.open"
        )
    name = str(getattr(error, "sqlite_errorname", None) or "")
    if name in _FULL_NAMES:
        return disk_full(subject, f"{name}: {error}")
    if name in _NO_MEMORY_NAMES:
        return no_memory(subject)
    if name.startswith(_BUSY_PREFIXES):
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
            next_step="Check the permissions of the state folder, that it was not moved, and how many files are open",
        )
    if name.startswith(_PASSING_PREFIXES) and name not in _LASTING_NAMES:
        return passing(subject, f"{name}: {error}")
    # A disk that fails may look like this to SQLite too.
    return StateError(
        subject,
        got=f"{name or type(error).__name__}: {error}",
        expected="what this version of bespoke writes",
        next_step="Call again; if it stays, restore the folder from a copy, or delete it and add the examples again",
    )
