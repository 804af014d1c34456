# SPDX-License-Identifier: Apache-2.0
"""Writer of a bundle: it appears whole or not at all, in a free place or in place of an older bundle.

The bytes hold nothing that differs between two builds of the same input: no times, folders or order of writing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

from bespoke.bundle.file_names import MANIFEST_FILE, SIGNATURE_FILE, SUM_FILE, file_name_problem
from bespoke.bundle.manifest import FileRecord, Manifest
from bespoke.bundle.manifest_check import check_manifest, referenced_files
from bespoke.bundle.manifest_document import manifest_bytes, manifest_sum
from bespoke.bundle.signature import signature_of
from bespoke.errors import BundleError
from bespoke.format.whole_folder import WholeFolder

__all__ = ["BundleWriter", "check_replaceable", "hash_file"]

_CHUNK_BYTES = 2**20
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)
_STATE = ("state.sqlite", "files.lock", "trainer.lock", "scratch")  # files of a state folder


class BundleWriter:
    """Collector of a bundle's files. `finish` moves them to `folder`.

    An existing bundle there is replaced by `finish`; anything else there is refused at once. As a context manager it removes
    its files if `finish` was not reached. Until then the files are in the folder `work`.
    """

    def __init__(self, folder: Path | str) -> None:
        self._whole = WholeFolder(folder, BundleError, check_replaceable, personal=False)
        self._folder, self.work = self._whole.target, self._whole.work

    def add_bytes(self, name: str, data: bytes) -> None:
        """Add a file of these bytes."""
        self.path_for(name).write_bytes(data)

    def add_file(self, name: str, source: Path | str) -> None:
        """Add a copy of a file."""
        shutil.copyfile(source, self.path_for(name))

    def path_for(self, name: str) -> Path:
        """Path at which to write file `name`; its folder exists. Raises BundleError for a name that no bundle can hold."""
        problem = file_name_problem(name)
        if problem:
            raise self._defect(f"the file name {name[:100]!r}, which is {problem}", "a plain relative name")
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def finish(self, manifest: Manifest, signing_key: bytes | None = None) -> Path:
        """Write manifest.json and move the bundle to its place.

        `files` of the manifest is filled in from the added files. With a private key the bundle is signed before the move.
        Raises BundleError if the manifest names a file that was not added, or does not name an added file.
        """
        files = {}
        for path in sorted(self.work.rglob("*")):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise self._defect(f"{path.name!r}, which is a link or a device", "regular files")
            if path.is_file():
                sha256, size = hash_file(path)
                files[path.relative_to(self.work).as_posix()] = FileRecord(sha256=sha256, size=size)

        missing, idle = referenced_files(manifest) - set(files), set(files) - referenced_files(manifest)
        for name in sorted(missing | idle):
            got = f"a manifest that names '{name}'" if name in missing else f"the file '{name}', which no field names"
            raise self._defect(got, "each named file to be there, each file to be named")

        whole = manifest.model_copy(update={"files": files})
        check_manifest(whole)
        data = manifest_bytes(whole)
        _write_synced(self.work / MANIFEST_FILE, data)
        _write_synced(self.work / SUM_FILE, manifest_sum(data))
        if signing_key is not None:
            _write_synced(self.work / SIGNATURE_FILE, signature_of(data, signing_key))
        return self._whole.finish()

    def abandon(self) -> None:
        """Remove the files written so far. After `finish` this does nothing."""
        self._whole.abandon()

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        self.abandon()
        if isinstance(problem, OSError) and problem.errno in _OF_THE_DISK:
            raise BundleError(
                str(self._folder),
                got=problem.strerror or "an error of the disk",
                expected="room for the whole bundle",
                next_step="Free some space, or choose another disk; nothing was written",
            ) from problem

    def _defect(self, got: str, expected: str) -> BundleError:
        return BundleError(str(self._folder), got=got, expected=expected, next_step="Fix the code that builds it")


def check_replaceable(folder: Path) -> None:
    """Raise BundleError unless the folder is a bundle and holds nothing else: a replacement deletes its files."""
    try:
        document = json.loads((folder / MANIFEST_FILE).read_bytes())
        ours = document["format"] == "bespoke-bundle"
        own = {MANIFEST_FILE, SUM_FILE, SIGNATURE_FILE, *document["files"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        ours, own = False, set()
    if not ours:
        raise BundleError(
            str(folder),
            got="a folder that is no bundle",
            expected="a free name, an empty folder or a bundle to replace",
            next_step="Choose another name, or remove the folder yourself",
        )
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name in own or (path.is_dir() and not path.is_symlink()):
            continue
        state = name in _STATE
        raise BundleError(
            str(folder),
            got=f"a bundle with {'a state' if state else 'a foreign file'} in it ('{name}')",
            expected="a bundle and nothing else, since it is replaced whole",
            next_step="Build to another name; a state belongs in a folder of its own"
            if state
            else "Move that file away first",
        )


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
