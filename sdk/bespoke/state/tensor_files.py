# SPDX-License-Identifier: Apache-2.0
"""Tensors of a committed step or an accepted adapter: safetensors files that the database names with their sha256.

Written to a temporary name, flushed, renamed, the folder flushed: when the database names a file, all of it is there.
Read only after size, hash, names, shapes and dtypes are what is expected.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import re
import secrets
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.errors import AdapterError
from bespoke.state.errors import damaged, from_os_error, from_read_error

SLOT = "slot"
ACCEPTED = "accepted"
_ALIGNMENT = 64  # of the data, so that a mapped tensor starts on a cache line
_CHUNK_BYTES = 2**20
_MAX_HEADER_BYTES = 8 * 2**20
_NAME = re.compile(r"(slot|accepted)_[0-9]{8,19}_[0-9a-f]{8}\.safetensors")
_LEFTOVER = re.compile(r"(slot|accepted)_.*\.safetensors(\.partial)?")

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class FileRecord:
    """What the database keeps of a tensor file."""

    file: str
    sha256: str
    bytes: int


def check_tensors(tensors: Mapping[str, np.ndarray], adapter_shapes: Shapes, *, with_state: bool) -> None:
    """AdapterError unless `tensors` are the adapter's pieces in float32, finite where they are to be accepted.

    `with_state` also allows optimizer state: `<piece>.<state>`, of the piece's shape.
    """
    for name, shape in adapter_shapes.items():
        if name not in tensors:
            raise _misfit(name, "no such tensor", f"float32 {list(shape)}")
    for name, tensor in tensors.items():
        piece = _piece(name, adapter_shapes, with_state)
        if piece is None:
            raise _misfit(name, "a tensor that the adapter does not have", "names of the bundle's adapter only")
        if tensor.dtype != np.float32 or tensor.shape != tuple(adapter_shapes[piece]):
            got, expected = f"{tensor.dtype} {list(tensor.shape)}", f"float32 {list(adapter_shapes[piece])}"
            raise _misfit(name, got, expected)
        if not with_state and not np.isfinite(tensor).all():
            raise _misfit(name, "NaN or infinity", "finite numbers")


def write(folder: Path, kind: str, number: int, tensors: Mapping[str, np.ndarray]) -> FileRecord:
    """Write float32 `tensors` to a new file of `folder` and flush it. DiskFull or StateError; then nothing is left.

    The name ends at random: a commit whose outcome is unknown (a failed flush) must not meet its own second attempt.
    """
    name = f"{kind}_{number:08d}_{secrets.token_hex(4)}.safetensors"
    partial = folder / f"{name}.partial"
    digest = hashlib.sha256()
    size = 0
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(partial, flags, 0o600)
        try:
            for chunk in _chunks(tensors):
                digest.update(chunk)
                size += len(chunk)
                while chunk:
                    chunk = chunk[os.write(descriptor, chunk) :]
            flush(descriptor)
        finally:
            os.close(descriptor)
        os.rename(partial, folder / name)
        flush_folder(folder)
    except OSError as error:
        for left in (partial, folder / name):
            discard(left)
        raise from_os_error(error, str(folder / name)) from error
    return FileRecord(name, digest.hexdigest(), size)


def read(folder: Path, record: FileRecord, adapter_shapes: Shapes, *, with_state: bool) -> dict[str, np.ndarray]:
    """The tensors of a file, float32, read-only and mapped. StateError unless they are exactly what was committed."""
    subject = str(folder / record.file)
    if not _NAME.fullmatch(record.file):
        raise damaged(str(folder), f"a tensor file named {record.file[:100]!r} in the database", "a name of ours")
    mapped = _map(folder / record.file, record.bytes)
    digest = hashlib.sha256()
    for start in range(0, len(mapped), _CHUNK_BYTES):
        digest.update(mapped[start : start + _CHUNK_BYTES])
    if digest.hexdigest() != record.sha256:
        raise damaged(subject, f"content with sha256 {digest.hexdigest()[:16]}", f"{record.sha256[:16]}, as committed")
    tensors = {}
    for name, (shape, start, end) in _header(mapped, subject).items():
        piece = _piece(name, adapter_shapes, with_state)
        if piece is None or shape != tuple(adapter_shapes[piece]):
            raise damaged(subject, f"tensor {name[:100]!r} of shape {list(shape)}", "the tensors of this adapter")
        tensors[name] = np.frombuffer(mapped, dtype="<f4", count=(end - start) // 4, offset=start).reshape(shape)
    for name in adapter_shapes:
        if name not in tensors:
            raise damaged(subject, f"no tensor '{name}'", "all tensors of this adapter")
    return tensors


def sweep(folder: Path, named: Collection[str], *, overwrite: bool) -> None:
    """Remove tensor files that the database does not name. The caller holds the lock on files.

    `overwrite` zeroes them first: they may hold what somebody asked to forget.
    """
    try:
        entries = [entry for entry in os.scandir(folder) if _LEFTOVER.fullmatch(entry.name)]
        for entry in entries:
            if entry.name not in named and not entry.is_dir(follow_symlinks=False):
                erase(Path(entry.path), overwrite=overwrite)
        if overwrite:
            flush_folder(folder)
    except OSError as error:
        raise from_os_error(error, str(folder)) from error


def erase(path: Path, *, overwrite: bool) -> None:
    """Unlink a file, zeroed first where asked and where nobody reads it. A link is unlinked, never followed.

    A reader holds a shared lock on the file for as long as it is mapped. Zeros would be what it answers with, so its file is
    only unlinked: no name leads to it any more, and the system frees it when the last reader lets go. New readers cannot
    come: they take the lock on files first, which the caller holds.
    """
    if overwrite and stat.S_ISREG(os.lstat(path).st_mode):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not _is_read(descriptor):
                left = os.fstat(descriptor).st_size
                zeros = bytes(_CHUNK_BYTES)
                while left > 0:
                    left -= os.write(descriptor, zeros[: min(left, _CHUNK_BYTES)])
                flush(descriptor)
        finally:
            os.close(descriptor)
    path.unlink(missing_ok=True)


def _is_read(descriptor: int) -> bool:
    """Whether somebody maps the file, this process included."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def discard(path: Path) -> None:
    """Unlink a file that nothing names; where that fails, a later sweep does it. The error before is the one to tell."""
    with suppress(OSError):
        path.unlink()


def files_in(folder: Path) -> list[str]:
    """Names of the finished tensor files in `folder`."""
    try:
        return [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    except OSError as error:
        raise from_os_error(error, str(folder)) from error


def flush(descriptor: int) -> None:
    """fsync; on Apple the command that also empties the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


def flush_folder(folder: Path) -> None:
    """Make renames and removals in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _chunks(tensors: Mapping[str, np.ndarray]) -> Iterator[memoryview]:
    """The bytes of the file: header, then the tensors in the order of their names, no copy of more than one."""
    header: dict[str, Any] = {}
    offset = 0
    for name in sorted(tensors):
        end = offset + tensors[name].nbytes
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    yield memoryview(struct.pack("<Q", len(text)) + text)
    for name in sorted(tensors):
        data = np.ascontiguousarray(tensors[name], dtype="<f4").reshape(-1).view(np.uint8).data
        for start in range(0, len(data), _CHUNK_BYTES):
            yield data[start : start + _CHUNK_BYTES]


def _map(path: Path, size: int) -> mmap.mmap:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise from_read_error(error, str(path)) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise damaged(str(path), "something that is no file", "a plain file")
        if found.st_size != size or size < 8:
            raise damaged(str(path), f"{found.st_size} bytes", f"{size} bytes, as committed")
        # Of the open file, which the mapping keeps open by a descriptor of its own: held until that goes. See `erase`.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    finally:
        os.close(descriptor)


def _header(mapped: mmap.mmap, subject: str) -> dict[str, tuple[tuple[int, ...], int, int]]:
    """name -> (shape, first byte, byte past the last), checked: float32, in order, without holes, to the end."""
    (length,) = struct.unpack("<Q", mapped[:8])
    if length > min(len(mapped) - 8, _MAX_HEADER_BYTES):
        raise damaged(subject, f"a header of {length} bytes", f"at most {min(len(mapped) - 8, _MAX_HEADER_BYTES)}")
    tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
    try:
        entries = json.loads(mapped[8 : 8 + length], object_pairs_hook=_unique)
        at = 8 + length
        for name, entry in entries.items():
            shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
            plain = all(type(number) is int and number >= 0 for number in (*shape, start, end))
            if not plain or len(shape) > 8 or entry["dtype"] != "F32" or set(entry) != _ENTRY_KEYS:
                raise ValueError(f"tensor {name[:100]!r}")
            count = 1
            for side in shape:
                count *= side
            if 8 + length + start != at or end - start != 4 * count or 8 + length + end > len(mapped):
                raise ValueError(f"the place of tensor {name[:100]!r}")
            at = 8 + length + end
            tensors[name] = (shape, 8 + length + start, at)
        if at != len(mapped):
            raise ValueError(f"{len(mapped) - at} bytes after the last tensor")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(subject, f"a header that is none of ours ({str(error)[:150]})", "a safetensors header") from error
    return tensors


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}


def _piece(name: str, adapter_shapes: Shapes, with_state: bool) -> str | None:
    """The adapter piece that a tensor is, or belongs to as optimizer state."""
    if name in adapter_shapes:
        return name
    piece, _, state = name.rpartition(".")
    return piece if with_state and state and piece in adapter_shapes else None


def _misfit(name: str, got: str, expected: str) -> AdapterError:
    return AdapterError(
        f"adapter tensor '{name}'"[:200],
        got=got,
        expected=expected,
        next_step="Use an adapter made with this bundle's base model and LoRA settings",
    )
