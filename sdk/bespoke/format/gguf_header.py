# SPDX-License-Identifier: Apache-2.0
"""The header of a GGUF file: its metadata and the table of its tensors (ggml/docs/gguf.md, versions 2 and 3).

The package gguf has a reader too. It creates an object for each member of an array (seconds for a vocabulary of 49
thousand tokens), and it does not end on an array that claims more members than the file has bytes. This reader checks all
counts against the size of the file before it uses them.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bespoke.errors import ModelError
from bespoke.format.plain_file import open_plain

__all__ = ["GgufHeader", "GgufTensor", "is_gguf", "read_gguf_header"]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
_MOST_DIMENSIONS = 4
_LONGEST_NAME = 2**16
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True)
class GgufTensor:
    """A tensor's entry.

    kind:    ggml's number of the type
    shape:   the slowest dimension first, as in NumPy
    offset:  position in the file
    """

    kind: int
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class GgufHeader:
    """The whole header. In `metadata` arrays of numbers are NumPy arrays, arrays of texts are lists of str."""

    path: Path
    size: int  # bytes of the file
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def is_gguf(path: Path) -> bool:
    """Whether `path` is a plain file that begins with GGUF's magic."""
    try:
        with open_plain(path) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the header. Raises ModelError for a file that is damaged, cut short or of another format.

    GgufCheckpoint checks where tensors end.
    """
    try:
        with open_plain(path) as file:
            return _HeaderReader(path, file).header()
    except OSError as error:
        raise _damaged(path, error.strerror or str(error), "a readable file") from None


class _HeaderReader:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.size = os.fstat(file.fileno()).st_size

    def header(self) -> GgufHeader:
        if (magic := self.file.read(4)) != _MAGIC:
            raise _damaged(self.path, f"a file that begins with {magic!r}", f"one that begins with {_MAGIC!r}")
        version = self.number("<I")
        if version not in _VERSIONS:
            raise _damaged(self.path, f"version {version}", " or ".join(map(str, _VERSIONS)) + ", little-endian")

        tensor_count, count = self.number("<Q"), self.number("<Q")
        self.check_count(tensor_count, 8 + 4 + 4 + 8, "tensors")
        self.check_count(count, 8 + 4 + 1, "fields of metadata")

        metadata: dict[str, Any] = {}
        for _ in range(count):
            name = self.name()
            if name in metadata:
                raise _damaged(self.path, f"{name} twice", "each field once")
            metadata[name] = self.value(self.number("<I"), name)

        entries = [self.tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment > 2**20:
            raise _damaged(self.path, f"general.alignment = {alignment!r}", "a small power of two")

        data = -(-self.file.tell() // alignment) * alignment
        tensors = {name: GgufTensor(kind, shape, data + offset) for name, kind, shape, offset in entries}
        if len(tensors) < len(entries):
            raise _damaged(self.path, "a tensor's name twice", "each tensor once")
        return GgufHeader(self.path, self.size, metadata, tensors)

    def tensor(self) -> tuple[str, int, tuple[int, ...], int]:
        name, dimensions = self.name(), self.number("<I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise _damaged(self.path, f"tensor {name} of {dimensions} dimensions", f"1 to {_MOST_DIMENSIONS}")
        shape = tuple(self.number("<Q") for _ in range(dimensions))[::-1]
        kind, offset = self.number("<I"), self.number("<Q")
        if min(shape) < 1 or math.prod(shape) > 2 * self.size * 256 or offset > self.size:
            raise _damaged(
                self.path, f"tensor {name} of shape {list(shape)} at {offset}", f"one within the {self.size} bytes"
            )
        return name, kind, shape, offset

    def value(self, kind: int, name: str) -> Any:
        if kind == _TEXT:
            return self.text(name)
        if kind in _SCALARS:
            return self.numbers(kind, 1, name)[0].item()
        if kind != _ARRAY:
            raise _damaged(self.path, f"{name} of the unknown type {kind}", "a type of GGUF")
        inner, count = self.number("<I"), self.number("<Q")
        if inner == _TEXT:
            self.check_count(count, 8, f"texts in {name}")
            return [self.text(name) for _ in range(count)]
        if inner not in _SCALARS:
            raise _damaged(self.path, f"{name}, an array of the type {inner}", "an array of numbers or texts")
        return self.numbers(inner, count, name)

    def numbers(self, kind: int, count: int, name: str) -> np.ndarray:
        dtype = np.dtype(_SCALARS[kind])
        self.check_count(count, dtype.itemsize, f"numbers in {name}")
        return np.frombuffer(self.bytes(count * dtype.itemsize), dtype)

    def text(self, name: str) -> str:
        length = self.number("<Q")
        self.check_count(length, 1, f"bytes of text in {name}")
        try:
            return self.bytes(length).decode()
        except UnicodeDecodeError:
            raise _damaged(self.path, f"bytes in {name} that are no UTF-8", "text") from None

    def name(self) -> str:
        length = self.number("<Q")
        if length > _LONGEST_NAME:
            raise _damaged(self.path, f"a name of {length} bytes", f"at most {_LONGEST_NAME}")
        try:
            return self.bytes(length).decode()
        except UnicodeDecodeError:
            raise _damaged(self.path, "a name that is no UTF-8", "text") from None

    def check_count(self, count: int, least_bytes: int, what: str) -> None:
        """Raise ModelError unless the rest of the file can hold `count` entries of at least `least_bytes`."""
        if count * least_bytes > self.size - self.file.tell():
            raise _damaged(self.path, f"{count} {what}", f"as many as the {self.size} bytes of the file can hold")

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.bytes(struct.calcsize(form)))[0]
        return value

    def bytes(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) != count:
            raise _damaged(self.path, f"an end within the header, at {self.file.tell()} bytes", "a whole file")
        return data


def _damaged(path: Path, got: str, expected: str) -> ModelError:
    return ModelError(f"GGUF file {path}", got=got, expected=expected, next_step="Download the file again")
