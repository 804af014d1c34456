# SPDX-License-Identifier: Apache-2.0
"""Sources of a bundle's bytes: a folder, or stored zips that are read in place.

Both return, for a name, an open descriptor with offset and size. The caller checks the hash and maps or reads. A folder is
walked with descriptors, component by component and never through a link. So nothing outside it can be reached: not by a name
(names are checked as well), and not by a link that appears during the reading.

A bundle is replaced by a rename, never in place. A reader holds a shared lock on its open folder. A writer that replaces the
bundle renames the old folder and leaves it to its readers. The next writer removes it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bespoke import arguments
from bespoke.bundle.file_names import MAX_FILES
from bespoke.bundle.stored_zip import read_entries
from bespoke.errors import BundleError

__all__ = ["Extent", "FolderSource", "Source", "ZipSource", "open_source"]

METHOD_ZIP, WEIGHTS_ZIP = "method.zip", "weights.zip"
_MAX_DEPTH = 8


@dataclass(frozen=True)
class Extent:
    """Bytes `offset` to `offset + size` of a descriptor that the receiver closes."""

    descriptor: int
    offset: int
    size: int


class Source(Protocol):
    """The files of a bundle by name."""

    subject: str

    def names(self) -> set[str]:
        """Names of all files. Raises BundleError for links, devices and anything else that no bundle holds."""
        ...

    def extent(self, name: str) -> Extent:
        """The bytes of a file. Raises BundleError if there is none."""
        ...

    def folder(self) -> Path | None:
        """The folder of the files; None if they are in a zip."""
        ...

    def close(self) -> None: ...


def open_source(path: Path | str | Sequence[Path | str]) -> Source:
    """Open a folder with manifest.json, a folder with the two zips, a zip, or several zips."""
    if not isinstance(path, str | os.PathLike):
        return ZipSource([arguments.path("bundle", part, "the path of a zip") for part in path])
    whole = arguments.folder("bundle", path)
    if os.path.isfile(whole):
        return ZipSource([whole])
    if os.path.isfile(whole / METHOD_ZIP) and not os.path.lexists(whole / "manifest.json"):
        return ZipSource([part for part in (whole / METHOD_ZIP, whole / WEIGHTS_ZIP) if os.path.isfile(part)])
    return FolderSource(whole)


class FolderSource:
    """A folder of files. The folder itself may be reached through a link; nothing inside it may be one."""

    def __init__(self, folder: Path) -> None:
        self.subject = str(folder)
        self._folder = folder
        self._root = self._opened()
        while not self._is_current():  # it was replaced before it was locked, and may be gone already
            os.close(self._root)
            self._root = self._opened()

    def names(self) -> set[str]:
        names: set[str] = set()
        try:
            self._walk(self._root, "", names, 0)
        except OSError as problem:
            raise self._refused("", problem.strerror or "no folder", "a folder that can be listed") from None
        return names

    def extent(self, name: str) -> Extent:
        descriptor = self._open(name)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise self._refused(name, "a folder or device", "a regular file")
        return Extent(descriptor, 0, status.st_size)

    def folder(self) -> Path | None:
        return self._folder

    def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
        self._root = -1

    def _opened(self) -> int:
        try:
            root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as problem:
            raise self._refused("", getattr(problem, "strerror", None) or str(problem), "a bundle") from None
        with suppress(OSError):  # a file system without locks
            fcntl.flock(root, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return root

    def _is_current(self) -> bool:
        """Whether the open folder is still the folder of its name."""
        try:
            return os.path.samestat(os.fstat(self._root), os.stat(self._folder))
        except OSError:
            return True  # the name is gone; a missing file is reported when it is opened

    def _open(self, name: str) -> int:
        """Open a file below the root. O_NOFOLLOW refuses a link; O_NONBLOCK does not wait for a named pipe's other end."""
        *folders, last = name.split("/")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        at = os.dup(self._root)
        try:
            for part in folders:
                inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
                os.close(at)
                at = inner
            return os.open(last, flags | os.O_NONBLOCK, dir_fd=at)
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise self._refused(name, reason, "a regular file of the bundle, not a link") from None
        finally:
            os.close(at)

    def _walk(self, at: int, prefix: str, names: set[str], depth: int) -> None:
        with os.scandir(at) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_file(follow_symlinks=False):
                    names.add(name)
                    if len(names) > MAX_FILES + 2:
                        raise self._refused("", f"more than {MAX_FILES} files", "fewer")
                elif entry.is_dir(follow_symlinks=False):
                    if depth + 1 >= _MAX_DEPTH:
                        raise self._refused(name[:255], "folders nested too deep", f"fewer than {_MAX_DEPTH} levels")
                    inner = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                    try:
                        self._walk(inner, name + "/", names, depth + 1)
                    finally:
                        os.close(inner)
                else:
                    raise self._refused(name[:255], "a link or a device", "regular files and folders")

    def _refused(self, name: str, got: str, expected: str) -> BundleError:
        return _refused(f"{self.subject}: {name}" if name else self.subject, got, expected)


class ZipSource:
    """Stored zips whose entries together are a bundle."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.subject = ", ".join(str(path) for path in paths) or "no archive"
        self._descriptors: list[int] = []
        self._entries: dict[str, Extent] = {}
        try:
            for path in paths:
                self._add(path)
        except BaseException:
            self.close()
            raise

    def names(self) -> set[str]:
        return set(self._entries)

    def extent(self, name: str) -> Extent:
        entry = self._entries.get(name)
        if entry is None:
            raise _refused(f"{self.subject}: {name}", "no such entry", "every file of the bundle; are both zips there?")
        return Extent(os.dup(entry.descriptor), entry.offset, entry.size)

    def folder(self) -> Path | None:
        return None

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def _add(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as problem:
            raise _refused(str(path), getattr(problem, "strerror", None) or str(problem), "a zip") from None
        self._descriptors.append(descriptor)
        for name, (offset, size) in read_entries(descriptor, str(path)).items():
            if name in self._entries:
                raise _refused(f"{path}: {name}", "an entry that another archive has as well", "each file once")
            self._entries[name] = Extent(descriptor, offset, size)


def _refused(subject: str, got: str, expected: str) -> BundleError:
    return BundleError(subject, got=got, expected=expected, next_step="Get the bundle again from where it was built")
