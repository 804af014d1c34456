# SPDX-License-Identifier: Apache-2.0
"""Writer of a folder that appears whole or not at all: it is written under another name and renamed when it is complete.

A writer holds an exclusive lock on the folder that it writes, a reader a shared lock. The system releases both when the
process ends. So a partial or old folder without a lock belongs to a dead writer or has no readers, and the next writer
removes it. The new folder is exchanged with the old one in a single step if the file system can do that. If it cannot and
the process dies between the two renames, the next writer puts the old folder back.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bespoke.errors import BespokeError

__all__ = ["WholeFolder", "check_place", "usable_folder"]

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
Check = Callable[[Path], None]
"""Check that raises a BespokeError if an existing folder must not be replaced."""


class WholeFolder:
    """The future folder `target`. Write its files under `work`, then call `finish` or `abandon`.

    personal:  the folder was learned from a person's words and is private: folder 0700, files of `new_file` 0600, whatever
               the umask. Any other folder has the rights that the umask gives.

    Raises `error` before anything is written if the place cannot be written or must not be replaced.
    """

    def __init__(self, target: Path | str, error: type[BespokeError], replaceable: Check, *, personal: bool) -> None:
        self.target = _absolute(target, error)
        self._error, self._replaceable, self._personal = error, replaceable, personal
        _check_existing(self.target, error, replaceable)
        with _system_errors(self.target, error):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.target.parent) as alone:
                if alone:
                    _remove_leftovers(self.target)
                work = tempfile.mkdtemp(prefix=f".{self.target.name}.", suffix=".partial", dir=self.target.parent)
                self.work = Path(work)
                self._lock = _lock(self.work)

    def new_file(self, name: str) -> Path:
        """Create an empty file in the folder; returns its path."""
        path = self.work / name
        with _system_errors(self.target, self._error):
            mode = 0o600 if self._personal else 0o666
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode))
        return path

    def finish(self) -> Path:
        """Move the folder to its place and remove the old folder.

        If a reader holds a shared lock on the old folder, it stays under another name until a later writer removes it.
        """
        if not self._personal:
            self.work.chmod(0o755)  # mkdtemp's 0700 would hide it from everyone else
        if self._lock is not None:
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_SH)  # readers may open it as soon as it is in place
        with _system_errors(self.target, self._error), _locked(self.target.parent):
            _check_existing(self.target, self._error, self._replaceable)  # again: a folder may have appeared meanwhile
            if not os.path.lexists(self.target):
                self.work.rename(self.target)
            elif _exchange(self.work, self.target):
                _remove_unread(self.work)
            else:
                old = self.work.with_suffix(".old")
                self.target.rename(old)
                self.work.rename(self.target)
                _remove_unread(old)
        self._release()
        return self.target

    def abandon(self) -> None:
        """Remove the files written so far. After `finish` this does nothing."""
        if self._lock is not None:
            shutil.rmtree(self.work, ignore_errors=True)
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def check_place(target: Path | str, error: type[BespokeError], replaceable: Check) -> None:
    """Raise `error` if a folder could not be written to this place. Leaves nothing behind."""
    target = _absolute(target, error)
    _check_existing(target, error, replaceable)
    with _system_errors(target, error):
        above = target.parent
        while not os.path.lexists(above):
            above = above.parent
        os.rmdir(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=above))


def usable_folder(folder: Path | str, error: type[BespokeError]) -> Path:
    """The folder, created if there is none. Raises `error` if files could not be written into it."""
    folder = _absolute(folder, error)
    with _system_errors(folder, error):
        folder.mkdir(parents=True, exist_ok=True)
        os.rmdir(tempfile.mkdtemp(prefix=".", suffix=".partial", dir=folder))
    return folder


def _absolute(target: Path | str, error: type[BespokeError]) -> Path:
    text = os.fspath(target)
    if not text or "\0" in text:
        raise error(
            f"the folder {text!r}",
            got="no name that a folder can have",
            expected="a path",
            next_step="Name a folder to write to",
        )
    return Path(os.path.abspath(text))


def _check_existing(target: Path, error: type[BespokeError], replaceable: Check) -> None:
    with _system_errors(target, error):
        if not os.path.lexists(target):
            return
        if target.is_symlink() or not target.is_dir():
            raise error(
                str(target),
                got="a link" if target.is_symlink() else "a file",
                expected="a free name or a folder to replace",
                next_step="Choose another name, or remove it",
            )
        with suppress(FileNotFoundError):
            if Path.cwd().is_relative_to(target.resolve()):
                raise error(
                    str(target),
                    got="the folder that this process works in",
                    expected="another folder, or one below it",
                    next_step="Name a new folder",
                )
        if any(target.iterdir()):
            replaceable(target)


@contextmanager
def _system_errors(target: Path, error: type[BespokeError]) -> Iterator[None]:
    """Turn an OSError of the body into `error`."""
    try:
        yield
    except OSError as problem:
        raise error(
            str(target),
            got=problem.strerror or str(problem),
            expected="a place where a folder can be written",
            next_step="Choose another place, or make its folder writable",
        ) from None


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Keep other writers of the same parent folder out. Yields False if the file system has no locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        locked = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """A descriptor that locks the folder until it is closed; None if another process holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        pass  # the file system has no locks
    return descriptor


def _remove_leftovers(target: Path) -> None:
    """Remove leftovers of dead writers. If a writer died between its two renames, put the old folder back."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}\.(partial|old)")
    for left in sorted(target.parent.iterdir()):
        if not name.fullmatch(left.name) or left.is_symlink() or not left.is_dir():
            continue
        if left.suffix == ".old" and not os.path.lexists(target):
            left.rename(target)
            continue
        _remove_unread(left)


def _remove_unread(folder: Path) -> None:
    """Remove the folder unless a process reads or writes it."""
    descriptor = _lock(folder)
    if descriptor is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in a single step. Returns False if the system or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)
