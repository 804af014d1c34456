# SPDX-License-Identifier: Apache-2.0
"""The state folder itself: created private to its owner, and telling a new state from one that lost its database."""

from __future__ import annotations

import os
from pathlib import Path

from bespoke.errors import StateError
from bespoke.state import tensor_files
from bespoke.state.database import FILE
from bespoke.state.errors import damaged, from_os_error
from bespoke.state.lock import FILES_LOCK

_CREATED = b"created"


def prepare(folder: Path) -> Path:
    """Create the folder (0700) or check that it is one that can be written: its path without links. StateError."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if not folder.is_dir():
                raise
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise StateError(
                str(folder),
                got="a folder that this process may not write",
                expected="a writable folder",
                next_step="Choose a folder that is private to the app",
            )
        return folder.resolve(strict=True)
    except OSError as error:
        raise from_os_error(error, str(folder)) from error


def made_before(folder: Path) -> bool:
    """Whether a state was made here. StateError where it was and its database is gone. Under the lock on files.

    Without this, a truncated database would pass for a new one, and the sweep would take the adapters.
    """
    path, journal = folder / FILE, folder / f"{FILE}-journal"
    try:
        made = bool((folder / FILES_LOCK).read_bytes() or tensor_files.files_in(folder))
        if made and (not path.exists() or path.stat().st_size == 0):
            raise damaged(str(path), "no database", "the database of this state")
        if os.path.lexists(journal):
            # A database in WAL mode has none; SQLite would play it back, and it may name another file to read.
            if made:
                raise damaged(str(journal), "a rollback journal", "a write-ahead log only")
            for suffix in ("", "-wal", "-shm", "-journal"):  # killed while the database was being made
                folder.joinpath(FILE + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    return made


def mark_created(folder: Path) -> None:
    """Note, in the lock file on files, that the database was made."""
    path = folder / FILES_LOCK
    try:
        if not path.read_bytes():
            path.write_bytes(_CREATED)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
