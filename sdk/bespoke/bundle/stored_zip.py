# SPDX-License-Identifier: Apache-2.0
"""Writer and reader of the stored zips that transport a bundle.

Entries are stored, not compressed: int4 weights do not compress. Each begins on a 16 KB boundary of the zip, padded by an
extra field as in Android's zipalign, so an app can map weights from the zip that it ships. Names are sorted and times are
constant: the same bundle gives the same zips.

The reader accepts exactly this form. Central directory and local headers must agree in every byte. Entries follow each other
without gaps. There is no comment, no zip64, no encryption, no data descriptor.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from bespoke.bundle.file_names import MAX_FILES, RESERVED, file_name_problem
from bespoke.errors import BundleError
from bespoke.format.tensors import PAGE_BYTES

__all__ = ["read_entries", "write_zip"]

_CHUNK_BYTES = 2**20
_LIMIT = 2**32 - 1  # zip64 would be twice the code, and two zips do the same
_PADDING_ID = 0xD935  # zipalign's
_DATE = 0x21  # 1980-01-01, the first that a zip can hold
_VERSION = 10  # stored entries need no more
_MADE_BY = 3 << 8 | _VERSION  # a Unix, so that the mode below counts
_MODE = (stat.S_IFREG | 0o644) << 16

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")


def write_zip(path: Path, files: Iterable[tuple[str, Path]]) -> None:
    """Write a stored zip of (name, source) files in the given order."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as out:
            entries = [_write_entry(out, name, source) for name, source in files]
            directory, count, begin = b"".join(entries), len(entries), out.tell()
            if begin + len(directory) > _LIMIT or count > MAX_FILES:
                raise _refused(str(path), f"{begin} bytes in {count} files", "less than 4 GiB; ship the folder instead")
            out.write(directory)
            out.write(_END.pack(b"PK\x05\x06", 0, 0, count, count, len(directory), begin, 0))
        partial.rename(path)
    except OSError as problem:
        got = problem.strerror or "an error"
        raise BundleError(
            str(path), got=got, expected="a place for a zip", next_step="Make room for it, and pack again"
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def read_entries(descriptor: int, subject: str) -> dict[str, tuple[int, int]]:
    """(offset, size) of each entry by name. Raises BundleError for a zip of another form."""
    return _Zip(descriptor, subject).entries()


def _write_entry(out: BinaryIO, name: str, source: Path) -> bytes:
    """Write header, padding and data; returns the entry for the central directory."""
    encoded, size, crc = name.encode("ascii"), source.stat().st_size, 0
    header = out.tell()
    extra = _padding(header + _LOCAL.size + len(encoded))
    with source.open("rb") as file:  # read twice: the checksum precedes the data
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
        if max(header, size) > _LIMIT:
            raise _refused(str(source), f"{size} bytes at {header}", "less than 4 GiB; ship the folder instead")
        out.write(_local(encoded, crc, size, len(extra)) + encoded + extra)
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            out.write(chunk)
    return _central(encoded, crc, size, header)


def _padding(begin: int) -> bytes:
    """An extra field that ends on a page; it needs 4 bytes for its own header."""
    length = -begin % PAGE_BYTES
    if length < 4:
        length += PAGE_BYTES
    return struct.pack("<2H", _PADDING_ID, length - 4).ljust(length, b"\0")


def _local(name: bytes, crc: int, size: int, extra: int) -> bytes:
    return _LOCAL.pack(b"PK\x03\x04", _VERSION, 0, 0, 0, _DATE, crc, size, size, len(name), extra)


def _central(name: bytes, crc: int, size: int, header: int) -> bytes:
    fixed = b"PK\x01\x02", _MADE_BY, _VERSION, 0, 0, 0, _DATE, crc, size, size, len(name), 0, 0, 0, 0, _MODE, header
    return _CENTRAL.pack(*fixed) + name


class _Zip:
    """Reader of a zip of `write_zip`. It computes the bytes that `write_zip` would write and compares."""

    def __init__(self, descriptor: int, subject: str) -> None:
        self._descriptor = descriptor
        self._subject = subject
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < _END.size:
            raise self._refused("", "no regular file, or too short a one", "a zip")
        self._size = status.st_size

    def entries(self) -> dict[str, tuple[int, int]]:
        tail = os.pread(self._descriptor, _END.size, self._size - _END.size)
        mark, _, _, _, count, length, begin, _ = _END.unpack(tail)
        if mark != b"PK\x05\x06" or tail != _END.pack(b"PK\x05\x06", 0, 0, count, count, length, begin, 0):
            raise self._refused("", "an end of central directory of another form", "a stored zip without comment")
        if count > MAX_FILES or begin + length != self._size - _END.size or length > count * (_CENTRAL.size + 255):
            raise self._refused("", f"a central directory of {length} bytes for {count} files", "one that fits")

        directory = os.pread(self._descriptor, length, begin)
        entries: dict[str, tuple[int, int]] = {}
        position = expected = 0
        for _ in range(count):
            name, position, crc, size, header = self._central_entry(directory, position)
            if name in entries:
                raise self._refused(name, "an entry twice", "each name once")
            if header != expected:
                raise self._refused(name, f"an entry at {header}", f"one at {expected}, where the one before ends")
            entries[name] = (self._data(name, crc, size, header, begin), size)
            expected = entries[name][0] + size
        if position != length or expected != begin:
            raise self._refused("", "bytes that belong to no entry", "entries without gaps")
        return entries

    def _central_entry(self, directory: bytes, position: int) -> tuple[str, int, int, int, int]:
        if position + _CENTRAL.size > len(directory):
            raise self._refused("", "a central directory that ends too soon", "an entry for each file")
        fields = _CENTRAL.unpack_from(directory, position)
        crc, size, name_length, header = fields[7], fields[8], fields[10], fields[16]
        end = position + _CENTRAL.size + name_length
        raw = directory[position + _CENTRAL.size : end]
        name = raw.decode("ascii", "replace")
        problem = "" if name in RESERVED else file_name_problem(name)
        if problem:
            raise self._refused(ascii(name[:100]), f"a name that is {problem}", "a plain relative name")
        if directory[position:end] != _central(raw, crc, size, header):
            raise self._refused(name, "an entry of another form", "a stored regular file without extra fields")
        return name, end, crc, size, header

    def _data(self, name: str, crc: int, size: int, header: int, limit: int) -> int:
        """Offset of an entry's data. Raises BundleError unless local header and central directory agree."""
        encoded = name.encode("ascii")
        extra = _padding(header + _LOCAL.size + len(encoded))
        expected = _local(encoded, crc, size, len(extra)) + encoded + extra
        if header + len(expected) + size > limit:
            raise self._refused(name, f"{size} bytes at {header}", "an entry within the archive")
        if os.pread(self._descriptor, len(expected), header) != expected:
            raise self._refused(name, "a local header that differs from the central directory", "the same")
        return header + len(expected)

    def _refused(self, name: str, got: str, expected: str) -> BundleError:
        return _refused(f"{self._subject}: {name}" if name else self._subject, got, expected)


def _refused(subject: str, got: str, expected: str) -> BundleError:
    return BundleError(subject, got=got, expected=expected, next_step="Pack the bundle again with bespoke")
