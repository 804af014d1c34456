# SPDX-License-Identifier: Apache-2.0
"""Tensor files that the database names: whole, and holding the adapter's pieces; and what else lies in the folder."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import sqlite3
import stat
import struct
from math import prod
from pathlib import Path

from database import PARTS, version_of
from findings import Findings

Shapes = dict[str, tuple[int, ...]]
ALIGNMENT = 64  # alignment of a file's data
LOCKS = {"files.lock": b"created", "trainer.lock": b'{"pid":'}
SCRATCH = "scratch"
HASHES = "hashes"  # hashes of the bundle's files; nothing of the user and no promise
RESERVE = "reserve"  # room on the disk: zeros
RECEIVED = "received"  # a folder of what a server sends; nothing of the user
NAME = re.compile(r"(slot|best|accepted|shared)_[0-9]{8,19}_[0-9a-f]{8}\.safetensors")
LEFT_BY_KILLED = re.compile(r"(slot|best|accepted|shared)_[0-9]{8,19}_[0-9a-f]{8}\.safetensors(\.partial)?")


def check_folder(folder: Path, named: set[str], findings: Findings) -> list[str]:
    """Nothing but what the format's page lists; returns what a killed process left, which the next open removes."""
    left = []
    for name in sorted(os.listdir(folder)):
        found = os.lstat(folder / name)
        if name == RECEIVED and stat.S_ISDIR(found.st_mode):
            continue
        if not findings.check(stat.S_ISREG(found.st_mode), "folder", name, "a link, a folder or a device"):
            continue
        mode = stat.S_IMODE(found.st_mode)
        findings.check(mode & 0o077 == 0, "mode", name, f"mode {mode:04o}, which others may read or write")
        if name in named or name in LOCKS or name in PARTS or name == HASHES:
            continue
        if name == RESERVE:
            findings.check(not any((folder / name).read_bytes()), "folder", name, "bytes that are not 0")
            continue
        if name == SCRATCH or LEFT_BY_KILLED.fullmatch(name):
            left.append(name)
        else:
            findings.check(False, "folder", name, "a file that nothing names")
    _check_locks(folder, findings)
    return left


def _check_locks(folder: Path, findings: Findings) -> None:
    """Checks the lock files. Only the beginning of their text may be there, because both are written without a promise."""
    for name, begins in LOCKS.items():
        if (folder / name).is_file():
            data = (folder / name).read_bytes()
            findings.check(data.startswith(begins) or begins.startswith(data), "locks", name, data)


def check_tensor_files(
    connection: sqlite3.Connection, folder: Path, shapes: Shapes, kept: dict[str, Shapes], findings: Findings
) -> set[str]:
    """Every file that slots, best steps and versions name; returns their names. `kept`: what methods keep in slots, where it is
    known."""
    named: set[str] = set()
    methods = dict(connection.execute("SELECT file, method FROM slots JOIN runs ON runs.id = slots.run"))
    kinds = {"slots": "slot", "versions": "accepted"} | ({"best_steps": "best"} if version_of(connection) > 2 else {})
    kinds |= {"federations": "shared"} if version_of(connection) > 5 else {}
    for table, kind in kinds.items():
        rows = f"SELECT file, sha256, bytes FROM {table} WHERE file IS NOT NULL ORDER BY file"
        for file, sha256, size in connection.execute(rows):
            findings.check(file not in named, "files", table, f"{file}, named twice")
            named.add(file)
            if findings.check(
                NAME.fullmatch(file) and file.startswith(kind), "files", table, f"a file called {file!r}"
            ):
                of_method = kept.get(methods.get(file, "")) if table == "slots" else None
                _check_file(folder / file, sha256, size, shapes, table == "slots", of_method, findings)
    return named


def _check_file(
    path: Path, sha256: str, size: int, shapes: Shapes, with_state: bool, kept: Shapes | None, findings: Findings
) -> None:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_size
            if not findings.check(
                found == size and size > 8, "size", path.name, f"{found} bytes, {size} were committed"
            ):
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                got = hashlib.sha256(data).hexdigest()
                if findings.check(got == sha256, "hash", path.name, got):
                    _check_tensors(data, path.name, shapes, with_state, kept, findings)
    except OSError as error:
        findings.check(False, "missing", path.name, error.strerror)


def _check_tensors(
    data: mmap.mmap, where: str, shapes: Shapes, with_state: bool, kept: Shapes | None, findings: Findings
) -> None:
    try:
        places = tensor_places(data)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        findings.check(False, "header", where, error)
        return
    findings.check(list(places) == sorted(places), "header", where, "tensors in another order than that of their names")
    missing = sorted(set(shapes) - set(places))
    findings.check(not missing, "shapes", where, f"no tensors {missing[:3]}")
    for name, (shape, start, end) in places.items():
        piece, _, state = name.rpartition(".")
        if name in shapes:
            findings.check(
                shape == shapes[name], "shapes", where, f"{name} of shape {shape}, the base's has {shapes[name]}"
            )
            findings.check(with_state or _finite(data[start:end]), "finite", where, f"{name} holds NaN or infinity")
        else:
            findings.check(
                with_state and state and piece in shapes, "shapes", where, f"{name}, which the adapter does not have"
            )
    if kept is None:
        return
    for name in sorted(places.keys() | kept.keys()):
        got = places[name][0] if name in places else None
        findings.check(
            got == kept.get(name), "kept state", where, f"{name} of shape {got}, the method keeps {kept.get(name)}"
        )


def tensor_places(data: mmap.mmap | bytes) -> dict[str, tuple[tuple[int, ...], int, int]]:
    """name -> shape, first byte, byte past the last, in the order of the file. ValueError and others for another format."""
    (length,) = struct.unpack("<Q", data[:8])
    start = 8 + length
    if start > len(data) or start % ALIGNMENT:
        raise ValueError(f"a header of {length} bytes in a file of {len(data)}")
    pairs = json.loads(data[8:start], object_pairs_hook=list)
    places: dict[str, tuple[tuple[int, ...], int, int]] = {}
    at = 0
    for name, fields in pairs:
        entry = dict(fields)
        shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
        if set(entry) != {"dtype", "shape", "data_offsets"} or entry["dtype"] != "F32" or name in places:
            raise ValueError(f"the entry of {name}")
        if begin != at or end - begin != 4 * prod(shape):
            raise ValueError(f"a hole, an overlap or another size at {name}")
        places[name] = (shape, start + begin, start + end)
        at = end
    if start + at != len(data):
        raise ValueError(f"{len(data) - start - at} bytes after the last tensor")
    return places


def _finite(data: bytes) -> bool:
    """No float32 whose exponent is all ones."""
    return all(bits & 0x7F800000 != 0x7F800000 for (bits,) in struct.iter_unpack("<I", data))
