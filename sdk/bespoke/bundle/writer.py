# SPDX-License-Identifier: Apache-2.0
"""Write a bundle: in a folder of its own beside the place where it will stand, and moved there when it is whole.

So a build that dies leaves no half bundle under the name that was asked for. Nothing that differs between two builds
of the same input (times, folders, order of writing) gets into the bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from bespoke.bundle.manifest import MANIFEST_FILE, SUM_FILE, FileRecord, Manifest, file_name_problem
from bespoke.bundle.manifest_document import check_manifest, manifest_bytes, manifest_sum, referenced_files
from bespoke.errors import BundleError

__all__ = ["BundleWriter", "hash_file"]

_CHUNK_BYTES = 2**20


class BundleWriter:
    """Collects the files of a bundle that will be the folder `folder`.

    An existing bundle there is replaced at `finish`; an existing folder that is no bundle is refused at once. As a
    context manager it removes what it wrote if `finish` was not reached.
    """

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(os.path.abspath(folder))
        if os.path.lexists(self._folder) and not self._replaceable():
            raise BundleError(
                str(self._folder),
                got="something that is no bundle",
                expected="a free name, an empty folder or a bundle to replace",
                next_step="Choose another name, or remove it",
            )
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        self._work = Path(tempfile.mkdtemp(prefix=f".{self._folder.name}.", suffix=".partial", dir=self._folder.parent))

    def add_bytes(self, name: str, data: bytes) -> None:
        """A file of these bytes."""
        self.path_for(name).write_bytes(data)

    def add_file(self, name: str, source: Path | str) -> None:
        """A copy of a file."""
        shutil.copyfile(source, self.path_for(name))

    def path_for(self, name: str) -> Path:
        """Where to write file `name` in place; its folder is there. BundleError for a name that no bundle can hold."""
        problem = file_name_problem(name)
        if problem:
            raise self._defect(f"the file name {name[:100]!r}, which is {problem}", "a plain relative name")
        path = self._work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def finish(self, manifest: Manifest) -> Path:
        """Write manifest.json, with `files` filled in from what was added, and move the bundle to its place.

        BundleError if the manifest names a file that was not added, or does not name one that was.
        """
        files = {}
        for path in sorted(self._work.rglob("*")):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise self._defect(f"{path.name!r}, which is a link or a device", "regular files")
            if path.is_file():
                sha256, size = hash_file(path)
                files[path.relative_to(self._work).as_posix()] = FileRecord(sha256=sha256, size=size)
        missing, idle = referenced_files(manifest) - set(files), set(files) - referenced_files(manifest)
        for name in sorted(missing | idle):
            got = f"a manifest that names '{name}'" if name in missing else f"the file '{name}', which no field names"
            raise self._defect(got, "each named file to be there, each file to be named")
        whole = manifest.model_copy(update={"files": files})
        check_manifest(whole)
        data = manifest_bytes(whole)
        _write_synced(self._work / MANIFEST_FILE, data)
        _write_synced(self._work / SUM_FILE, manifest_sum(data))
        self._work.chmod(0o755)  # mkdtemp's 0700 would hide the bundle from everyone else
        if self._folder.is_dir():
            replaced = Path(tempfile.mkdtemp(prefix=f".{self._folder.name}.", suffix=".old", dir=self._folder.parent))
            self._folder.rename(replaced / "bundle")
            self._work.rename(self._folder)
            shutil.rmtree(replaced)
        else:
            self._work.rename(self._folder)
        return self._folder

    def abandon(self) -> None:
        """Remove what was written so far; after `finish` this does nothing."""
        shutil.rmtree(self._work, ignore_errors=True)

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def _replaceable(self) -> bool:
        if self._folder.is_symlink() or not self._folder.is_dir():
            return False
        return (self._folder / MANIFEST_FILE).is_file() or not any(self._folder.iterdir())

    def _defect(self, got: str, expected: str) -> BundleError:
        return BundleError(str(self._folder), got=got, expected=expected, next_step="Mend the code that builds it")


def hash_file(path: Path | str) -> tuple[str, int]:
    """(sha256 in hexadecimal, size in bytes) of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
