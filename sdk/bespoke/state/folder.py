# SPDX-License-Identifier: Apache-2.0
"""The state folder itself: created private to its owner, and telling a new state from one that lost its database."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from bespoke.errors import ConfigError, StateError
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
        _check_private(folder)
        return folder.resolve(strict=True)
    except OSError as error:
        raise from_os_error(error, str(folder)) from error


def check_apart(state: Path, bundle: Path) -> None:
    """ConfigError where one lies in the other: a bundle with a file that it does not list is damaged. Writes nothing."""
    one, other = Path(os.path.realpath(state)), Path(os.path.realpath(bundle))
    if one == other:
        got = "which is the bundle"
    elif other in one.parents:
        got = "which lies within the bundle"
    elif one in other.parents:
        got = "which holds the bundle"
    else:
        return
    raise ConfigError(
        "state", got=f"{state}, {got}", expected="a folder of its own, apart from the bundle",
        next_step="Choose another folder for the state; nothing was written",
    )  # fmt: skip


def check_exists(folder: Path) -> None:
    """StateError where no state was made. Writes nothing."""
    if not (folder / FILE).is_file():
        raise StateError(
            str(folder), got="no state", expected="the folder of a user's state, as training made it",
            next_step="Check the path; `bespoke train` with --examples makes a state",
        )  # fmt: skip


def _check_private(folder: Path) -> None:
    """StateError for a folder in which others may exchange files. That they may list it does no harm: its files are 0600."""
    found = folder.stat()
    if found.st_uid != os.geteuid():
        got, next_step = f"a folder of user {found.st_uid}", "Choose a folder that this user made, or let the path be made"
        raise StateError(str(folder), got=got, expected=f"one of user {os.geteuid()}, who opens it", next_step=next_step)
    if found.st_mode & stat.S_IWOTH:
        got = f"a folder of mode {stat.S_IMODE(found.st_mode):04o}, into which every user may write"
        next_step = f"Close it to others: chmod 700 '{folder}'"
        raise StateError(str(folder), got=got, expected="a folder that is private to this user", next_step=next_step)


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
