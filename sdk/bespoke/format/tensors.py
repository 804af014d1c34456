# SPDX-License-Identifier: Apache-2.0
"""Safetensors files that can be mapped in place: 8 bytes of header length, a JSON header, tensors without holes.

The writer replaces the `safetensors` package for three reasons. The data begins on a 16 KB boundary (the page of arm64
phones; the format lets the header end in spaces). A tensor is written in pieces while it is converted. The order is fixed:
wide types first, which aligns every tensor, then by name, so two builds give the same bytes.

The reader does not trust the file: it checks every entry against the file's size before it uses any. It returns read-only
views of a single mapping, not copies. Any reader of safetensors reads these files.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bespoke.errors import BespokeError, BundleError
from bespoke.format.json_strict import dumps_canonical, loads_strict, shown_json

__all__ = ["PAGE_BYTES", "TensorWriter", "map_tensors", "tensors_from_buffer", "write_arrays", "write_tensors"]

PAGE_BYTES = 16384
MAX_HEADER_BYTES = 4 * 2**20
MAX_TENSORS = 65_536
MAX_DIMENSIONS = 8
MAX_NAME_CHARACTERS = 256
MAX_TENSOR_BYTES = 2**40

# In the order of the file. Little-endian on every machine.
DTYPES: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "F16": np.dtype("<f2"),
    "U8": np.dtype("u1"),
}
_CODES = {dtype: code for code, dtype in DTYPES.items()}
_RANK = {code: rank for rank, code in enumerate(DTYPES)}


@dataclass(frozen=True)
class _Slot:
    """Place of a tensor: `begin` and `end` in bytes after the header."""

    code: str
    shape: tuple[int, ...]
    begin: int
    end: int


class TensorWriter:
    """Writer of a file whose shapes are known before its values. Write tensors in any order, then `close`.

    `tensors` maps name to (dtype, shape). The dtype is float32, float16, uint8, int32 or int64, in any form that `np.dtype`
    accepts. As a context manager it closes at the end, and removes the file if the body failed.
    """

    def __init__(self, path: Path | str, tensors: Mapping[str, tuple[Any, tuple[int, ...]]]) -> None:
        self._path = Path(path)
        self._slots, header = _layout(tensors, str(path))
        self._start = len(header)
        self._written = dict.fromkeys(self._slots, 0)
        self._file: BinaryIO = self._path.open("wb")
        self._file.write(header)

    def write(self, name: str, values: np.ndarray) -> None:
        """Append `values` (any shape, row-major, of the tensor's dtype) to tensor `name`."""
        slot = self._slots.get(name)
        if slot is None:
            raise self._defect(f"values for tensor '{name}'", "only tensors that were announced")
        if _CODES.get(values.dtype.newbyteorder("<")) != slot.code:
            raise self._defect(f"{values.dtype} for tensor '{name}'", DTYPES[slot.code].name)
        if self._written[name] + values.nbytes > slot.end - slot.begin:
            raise self._defect(f"more values than tensor '{name}' of shape {list(slot.shape)} holds", "as many")
        self._file.seek(self._start + slot.begin + self._written[name])
        self._file.write(np.ascontiguousarray(values, dtype=DTYPES[slot.code]).data.cast("B") if values.size else b"")
        self._written[name] += values.nbytes

    def leave_hollow(self) -> None:
        """Make all values that were not written zeros. They take no room on the disk."""
        self._file.truncate(self._start + max((slot.end for slot in self._slots.values()), default=0))
        self._written = {name: slot.end - slot.begin for name, slot in self._slots.items()}

    def close(self) -> None:
        """End the file. Raises BundleError if a tensor is not complete."""
        if self._file.closed:
            return
        short = [name for name, slot in self._slots.items() if self._written[name] != slot.end - slot.begin]
        self._file.close()
        if short:
            self._path.unlink()
            raise self._defect(f"too few values for tensor '{short[0]}'", "every tensor complete")

    def __enter__(self) -> TensorWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()
            self._path.unlink(missing_ok=True)

    def _defect(self, got: str, expected: str) -> BundleError:
        return BundleError(str(self._path), got=got, expected=expected, next_step="Fix the code that writes this file")


def write_tensors(path: Path | str, tensors: Iterable[tuple[str, Any, tuple[int, ...], Iterable[np.ndarray]]]) -> None:
    """Write (name, dtype, shape, pieces) tensors. Pieces are consumed tensor by tensor, in the given order."""
    listed = list(tensors)
    _refuse_twice([name for name, *_ in listed], str(path))
    with TensorWriter(path, {name: (dtype, tuple(shape)) for name, dtype, shape, _ in listed}) as writer:
        for name, _, _, pieces in listed:
            for piece in pieces:
                writer.write(name, piece)


def write_arrays(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write whole arrays."""
    write_tensors(path, ((name, array.dtype, array.shape, (array,)) for name, array in arrays.items()))


def map_tensors(
    path: Path | str,
    *,
    max_header: int = MAX_HEADER_BYTES,
    error: type[BespokeError] = BundleError,
    page_aligned: bool = False,
) -> dict[str, np.ndarray]:
    """Read-only views of the tensors by name, over a mapping of the file that ends with the last view.

    `page_aligned`: the data must begin on a 16 KB boundary, as weights do. The last component of `path` must be a regular
    file, not a link. Raises `error` for a file that is not sound.
    """
    subject = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as problem:  # ValueError: NUL in the name
        reason = getattr(problem, "strerror", None) or str(problem)
        raise _refused(error, subject, reason, "a readable file that is not a link") from None
    try:
        size = os.fstat(descriptor).st_size
        if size < 8:
            raise _refused(error, subject, f"{size} bytes", "at least the 8 bytes of a header length")
        buffer = memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as problem:  # a folder or a device cannot be mapped
        raise _refused(error, subject, str(problem), "a regular file") from None
    finally:
        os.close(descriptor)
    return tensors_from_buffer(buffer, subject, max_header=max_header, error=error, page_aligned=page_aligned)


def tensors_from_buffer(
    buffer: memoryview,
    subject: str,
    *,
    max_header: int = MAX_HEADER_BYTES,
    error: type[BespokeError] = BundleError,
    page_aligned: bool = False,
) -> dict[str, np.ndarray]:
    """`map_tensors` over bytes in memory. The views keep `buffer` alive."""
    slots, start = _read_header(buffer, subject, max_header, error)
    if page_aligned and start % PAGE_BYTES:
        raise _refused(error, subject, f"data at byte {start}", f"data at a multiple of {PAGE_BYTES}")
    tensors = {}
    for name, slot in slots.items():
        empty = slot.begin == slot.end  # its offset may be the very end of the file
        # The bytes cannot be written, so the view is read-only too.
        tensors[name] = np.ndarray(
            slot.shape, DTYPES[slot.code], b"" if empty else buffer, 0 if empty else start + slot.begin
        )
    return tensors


def _layout(tensors: Mapping[str, tuple[Any, tuple[int, ...]]], subject: str) -> tuple[dict[str, _Slot], bytes]:
    """Slots in the order of the file, and the header with its padding."""
    coded: list[tuple[int, str, str, tuple[int, ...]]] = []
    for name, (dtype, shape) in tensors.items():
        code = _CODES.get(np.dtype(dtype).newbyteorder("<"))
        problem = _bad_name(name)
        if code is None or problem:
            raise BundleError(
                f"{subject}, tensor '{name[:100]}'",
                got=problem or str(np.dtype(dtype)),
                expected="a short plain name" if problem else f"one of {', '.join(d.name for d in DTYPES.values())}",
                next_step="Rename it" if problem else "Convert it before writing",
            )
        coded.append((_RANK[code], name, code, tuple(int(size) for size in shape)))

    slots: dict[str, _Slot] = {}
    offset = 0
    for _, name, code, shape in sorted(coded):
        end = offset + math.prod(shape) * DTYPES[code].itemsize
        slots[name] = _Slot(code, shape, offset, end)
        offset = end

    entries = {
        name: {"data_offsets": [slot.begin, slot.end], "dtype": slot.code, "shape": list(slot.shape)}
        for name, slot in slots.items()
    }
    text = dumps_canonical(entries)[:-1]
    padded = -(-(8 + len(text)) // PAGE_BYTES) * PAGE_BYTES - 8
    return slots, padded.to_bytes(8, "little") + text.ljust(padded, b" ")


def _read_header(
    buffer: memoryview, subject: str, max_header: int, error: type[BespokeError]
) -> tuple[dict[str, _Slot], int]:
    size = len(buffer)
    length = int.from_bytes(buffer[:8], "little")
    if size < 8 or length > min(max_header, size - 8):
        raise _refused(
            error,
            subject,
            f"a header of {length} bytes in a file of {size}",
            f"at most {max_header} and within the file",
        )

    header = bytes(buffer[8 : 8 + length])
    if not header.startswith(b"{"):
        raise _refused(error, subject, f"a header that begins with {header[:1].decode('latin-1')!r}", "'{'")
    document = loads_strict(
        header,
        subject=f"{subject}, header",
        error=error,
        max_bytes=max_header,
        max_depth=3,
        max_items=MAX_TENSORS * (MAX_DIMENSIONS + 8),
    )

    metadata = document.pop("__metadata__", None)
    if metadata is None:  # MLX writes null where there is none
        metadata = {}
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise _refused(error, f"{subject}, __metadata__", "other than texts by name", "texts by name")
    if len(document) > MAX_TENSORS:
        raise _refused(error, subject, f"{len(document)} tensors", f"at most {MAX_TENSORS}")

    slots = {name: _read_slot(name, entry, subject, error) for name, entry in document.items()}
    start, offset = 8 + length, 0
    for name, slot in sorted(slots.items(), key=lambda item: (item[1].begin, item[1].end)):
        where = f"{subject}, tensor '{name}'"
        if slot.begin != offset:
            kind = "a hole" if slot.begin > offset else "an overlap"
            raise _refused(error, where, f"{kind} before byte {slot.begin}", f"a tensor that begins at {offset}")
        if (start + slot.begin) % DTYPES[slot.code].itemsize:
            raise _refused(error, where, f"data at byte {start + slot.begin}", "data aligned to its type")
        offset = slot.end
    if start + offset != size:
        raise _refused(error, subject, f"{size} bytes", f"{start + offset}, where the last tensor ends")
    return slots, start


def _read_slot(name: str, entry: Any, subject: str, error: type[BespokeError]) -> _Slot:
    where = f"{subject}, tensor '{name[:100]}'"
    problem = _bad_name(name)
    if problem:
        raise _refused(error, where, problem, "a short plain name")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _refused(error, where, "other fields", "exactly dtype, shape and data_offsets")

    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise _refused(error, where, f"dtype {shown_json(code)}", f"one of {', '.join(DTYPES)}")
    if not _sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise _refused(error, where, f"shape {shown_json(shape)}", f"at most {MAX_DIMENSIONS} sizes")
    if not _sizes(offsets) or len(offsets) != 2:
        raise _refused(error, where, f"data_offsets {shown_json(offsets)}", "[begin, end]")

    # Python's integers do not overflow. A tensor of more than 2**40 bytes is refused before its size is used.
    if math.prod(shape) * DTYPES[code].itemsize != offsets[1] - offsets[0]:
        raise _refused(error, where, f"{offsets[1] - offsets[0]} bytes for shape {shape}", "as many as dtype and shape")
    return _Slot(code, tuple(shape), offsets[0], offsets[1])


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size <= MAX_TENSOR_BYTES for size in value)


def _bad_name(name: str) -> str:
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or name == "__metadata__":
        return f"a name of {len(name)} characters, or not printable"
    return ""


def _refuse_twice(names: list[str], subject: str) -> None:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise _refused(BundleError, subject, f"tensor '{twice}' twice", "each name once")


def _refused(error: type[BespokeError], subject: str, got: str, expected: str) -> BespokeError:
    return error(subject, got=got, expected=expected, next_step="Get the file again from where it was built")
