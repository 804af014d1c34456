# SPDX-License-Identifier: Apache-2.0
"""A folder that appears under its name whole or not at all: it is written next to that name, and renamed when it is complete.

A writer holds an exclusive lock on the folder that it writes, a reader a shared one. The system releases both when the process
ends, however it ends. So a partial or old folder without a lock was left by a dead writer or has no readers, and the next writer
removes it. The new folder is exchanged with the old one in one step where the file system can do that. Where it cannot, and the
process dies between the two renames, the next writer puts the old folder back.
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
"""Raises a BespokeError about an existing folder that must not be replaced."""


class WholeFolder:
    """What will be the folder `target` is written under `work`; then either `finish` or `abandon`.

    personal: it holds what was learned from a person's words, and is for that person alone: folder 0700, files 0600, whatever the
              umask, where `new_file` makes them. Other folders are for everyone whom the umask lets in

    Raises `error` where the place cannot be written or is not to be replaced, before anything is written.
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
                made = tempfile.mkdtemp(prefix=f".{self.target.name}.", suffix=".partial", dir=self.target.parent)
                self.work = Path(made)
                self._lock = _lock(self.work)

    def new_file(self, name: str) -> Path:
        """The path of a file of the folder, which is there, empty, for a writer to open."""
        path = self.work / name
        with _system_errors(self.target, self._error):
            mode = 0o600 if self._personal else 0o666
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode))
        return path

    def finish(self) -> Path:
        """Moves the folder to its place and removes the one that was there. If a reader holds a shared lock on that one, it stays
        under another name until a later writer removes it.
        """
        if not self._personal:
            self.work.chmod(0o755)  # mkdtemp's 0700 would hide it from everyone else
        if self._lock is not None:
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_SH)  # from its first moment in place on it can be read
        with _system_errors(self.target, self._error), _locked(self.target.parent):
            _check_existing(self.target, self._error, self._replaceable)  # again: it may have come meanwhile
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
        """Removes what was written so far; after `finish` this does nothing."""
        if self._lock is not None:
            shutil.rmtree(self.work, ignore_errors=True)
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def check_place(target: Path | str, error: type[BespokeError], replaceable: Check) -> None:
    """Raises `error` where a folder could not be written to this place; leaves nothing behind."""
    target = _absolute(target, error)
    _check_existing(target, error, replaceable)
    with _system_errors(target, error):
        above = target.parent
        while not os.path.lexists(above):
            above = above.parent
        os.rmdir(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=above))


def usable_folder(folder: Path | str, error: type[BespokeError]) -> Path:
    """The folder, made where there is none. Raises `error` where files could not be written into it."""
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
    """Raises `error` in place of an OSError."""
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
    """Keeps other writers of the same parent folder out for a moment; False where the file system has no locks."""
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
    """A descriptor that holds the folder until it is closed; None where another process holds it."""
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
    """Removes what dead writers left. If one died between its two renames, the old folder goes back to its place."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}\.(partial|old)")
    for left in sorted(target.parent.iterdir()):
        if not name.fullmatch(left.name) or left.is_symlink() or not left.is_dir():
            continue
        if left.suffix == ".old" and not os.path.lexists(target):
            left.rename(target)
            continue
        _remove_unread(left)


def _remove_unread(folder: Path) -> None:
    """Removes the folder, unless a process reads or writes it."""
    descriptor = _lock(folder)
    if descriptor is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _exchange(one: Path, other: Path) -> bool:
    """Both folders change places in one step; False where the system or the file system has no such step."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)
