# SPDX-License-Identifier: Apache-2.0
"""Locks between processes. flock, because the kernel releases it when its holder dies, however it dies.

`trainer.lock` is held for a whole training call: a second trainer is refused and told who holds it. `files.lock` is
held while tensor files and database change together, so that nobody sweeps away a file that is about to be named; those
who add examples never wait for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bespoke.errors import StateError, StateLocked
from bespoke.state.errors import from_os_error

FILES_LOCK = "files.lock"
TRAINER_LOCK = "trainer.lock"
WAIT_SECONDS = 30.0
_POLL_SECONDS = 0.005
_MAX_NOTE_BYTES = 4096


def now() -> str:
    """UTC, for people to read; nothing in training depends on it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def files_lock(folder: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Exclusive right to change tensor files. Waits; StateError after `wait_seconds`."""
    path = folder / FILES_LOCK
    descriptor = _open(path)
    try:
        deadline = time.monotonic() + wait_seconds
        while not _try(descriptor):
            if time.monotonic() > deadline:
                raise StateError(
                    str(path),
                    got=f"a lock that another process has held for more than {wait_seconds:.0f} s",
                    expected="a commit of a few seconds at most",
                    next_step="End the process that holds it, or wait and try again",
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def trainer_lock(folder: Path, purpose: str) -> Iterator[None]:
    """The right to train. StateLocked at once, naming the holder, where somebody else has it."""
    path = folder / TRAINER_LOCK
    descriptor = _open(path)
    try:
        if not _try(descriptor):
            raise StateLocked(
                str(path),
                got=f"a lock held by {_holder(descriptor)}",
                expected="no other trainer on this state",
                next_step="Wait until it has finished, or end it: what it committed stays",
            )
        note = {"pid": os.getpid(), "since": now(), "host_started_at": _host_started_at(), "purpose": purpose}
        _note(descriptor, json.dumps(note).encode()[:_MAX_NOTE_BYTES])
        yield
        _note(descriptor, b"")
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StateError(
            str(path), got="something that is no file", expected="a lock file", next_step=f"Remove {path.name}"
        )
    return descriptor


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise from_os_error(error, "a lock of the state folder") from error
    return True


def _note(descriptor: int, note: bytes) -> None:
    # The note only informs; a full disk must not keep a trainer from the examples it may still read.
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note, 0)
    except OSError:
        return


def _holder(descriptor: int) -> str:
    try:
        note = json.loads(os.pread(descriptor, _MAX_NOTE_BYTES, 0))
        return f"process {int(note['pid'])} since {note['since']} ({note['purpose']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "a process that has not said who it is"


def _host_started_at() -> str | None:
    """When the host was started: a process number means nothing across that."""
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return datetime.fromtimestamp(int(line.split()[1]), UTC).isoformat()
    except (OSError, ValueError, IndexError):
        pass
    return None
