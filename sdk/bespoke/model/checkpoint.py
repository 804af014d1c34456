# SPDX-License-Identifier: Apache-2.0
"""Reader of a Hugging Face folder's weights, row by row: no more than a chunk of a tensor is ever in memory.

safetensors has a reader of its own here because numpy has no bfloat16. A bf16 number is the upper half of an fp32
number, so its 16 bits are shifted up. A file is an 8-byte little-endian header length, a JSON header, and the data.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.errors import ModelError
from bespoke.format.plain_file import open_plain, read_plain
from bespoke.model.weight_source import WeightSource, check_rows

__all__ = ["INDEX", "ORIGINAL", "SINGLE", "Checkpoint", "check_no_other_weights"]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors format
_WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
_STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I64": "<i8"}
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

ORIGINAL = "Give the float model that it was made from, by its folder or hub id; bespoke quantizes it by itself"
_TO_SAFETENSORS = "AutoModelForCausalLM.from_pretrained({0!r}, dtype='auto').save_pretrained({0!r})"
_PUBLISHED = "Give the model as its publisher has it in safetensors"
# Weights in other formats: a pattern of names, what they are, what to do. The first match counts.
_FORMS = (
    ("*.gguf", "a GGUF file", "Give the file itself: model={1!r}"),
    (
        "consolidated*.pth",
        "Meta's own checkpoint",
        "Give Hugging Face's form of it: its hub id, or the folder above 'original'",
    ),
    ("*.npz", "weights of MLX in NumPy's form", ORIGINAL),
    ("*.bin", "PyTorch weights as a pickle", f"Write them as safetensors with transformers: {_TO_SAFETENSORS}"),
    ("*.pt", "a pickle of PyTorch", _PUBLISHED),
    ("*.pth", "a pickle of PyTorch", _PUBLISHED),
    ("*.h5", "weights of TensorFlow", _PUBLISHED),
    ("*.msgpack", "weights of Flax", _PUBLISHED),
)


@dataclass(frozen=True)
class _Entry:
    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int  # of the first byte, from the start of the file


class Checkpoint(WeightSource):
    """The tensors of a folder by name. Opening reads headers only; `rows` reads the rows of one call and keeps nothing."""

    def __init__(self, folder: Path, entries: dict[str, _Entry], metadata: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.metadata = metadata or {}  # of a single file
        self._entries = entries

    @classmethod
    def open(cls, folder: Path | str) -> Checkpoint:
        """Read the headers of `model.safetensors`, else of the files that the index names, as transformers does.

        Raises ModelError if there are no safetensors, a file is damaged or the index names a tensor that no file holds.
        """
        folder = Path(folder)
        if (folder / SINGLE).is_file():
            return cls.open_file(folder / SINGLE)
        if (folder / INDEX).is_file():
            return cls(folder, _sharded(folder))
        loose = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
        if len(loose) == 1:
            return cls.open_file(loose[0])
        check_no_other_weights(folder)
        raise ModelError(
            f"weights of {folder}",
            got=", ".join(path.name for path in loose[:3]) or "no weights",
            expected=f"{SINGLE} or {INDEX}",
            next_step="Check that the download is complete",
        )

    @classmethod
    def open_file(cls, path: Path) -> Checkpoint:
        """Read the header of one safetensors file."""
        return cls(path.parent, *_header(path))

    @staticmethod
    def present(folder: Path | str) -> bool:
        """Whether the folder holds safetensors at all."""
        return any(Path(folder).glob("*.safetensors"))

    def names(self) -> list[str]:
        return sorted(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def dtype(self, name: str) -> str:
        """float32, float16 or bfloat16."""
        entry = self._entry(name)
        return _DTYPES[_float_dtype(name, entry)]

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of the first axis as a new float32 array. They are read and not mapped: no pages stay behind."""
        dtype = _float_dtype(name, self._entry(name))
        raw = self.stored_rows(name, start, stop)
        if dtype != "BF16":
            return raw.astype(np.float32, copy=False)
        wide = raw.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)

    def stored_dtype(self, name: str) -> str:
        """The dtype by safetensors' name: F32, BF16, I32, ..."""
        return self._entry(name).dtype

    def stored_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) in the stored dtype; bfloat16 comes as its bits in uint16."""
        entry = self._entry(name)
        if entry.dtype not in _STORED:
            raise _damaged(entry.file, f"{name} of dtype {entry.dtype}", f"one of {', '.join(_STORED)}")
        rows = entry.shape[0] if entry.shape else 1
        check_rows(name, start, stop, rows)

        row_items = prod(entry.shape[1:])
        count = (stop - start) * row_items
        dtype = np.dtype(_STORED[entry.dtype])
        try:
            with open_plain(entry.file) as file:
                raw = np.fromfile(
                    file,
                    dtype=dtype,
                    count=count,
                    offset=entry.offset + start * row_items * dtype.itemsize,
                )
        except OSError as error:
            raise _damaged(entry.file, error.strerror or str(error), "a readable file") from None

        if raw.size != count:
            raise _damaged(entry.file, f"{raw.size} of {count} numbers of {name}", "all of them")
        return raw.reshape(stop - start, *entry.shape[1:])

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            last = name.rsplit(".", 2)[-2] if name.count(".") > 1 else name
            near = [other for other in self.names() if last in other][:3]
            files = sorted({entry.file.name for entry in self._entries.values()})
            raise ModelError(
                f"tensor {name}",
                got=f"none of this name in {self.folder} ({', '.join(files[:3])}{', ...' if len(files) > 3 else ''})"
                + (f"; similar: {', '.join(near)}" if near else ""),
                expected="a tensor of this name",
                next_step="Check that the download is complete and that config.json belongs to it",
            )
        return self._entries[name]


def check_no_other_weights(folder: Path) -> None:
    """Raise ModelError, naming the file, if a folder without safetensors holds weights in another format."""
    for pattern, what, next_step in _FORMS:
        files = sorted(path.name for path in folder.glob(pattern))
        if files:
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            raise ModelError(
                f"weights of {folder}",
                got=f"{what} ({files[0]}{more})",
                expected=f"{SINGLE} or {INDEX}",
                next_step=next_step.format(str(folder), str(folder / files[0])),
            )


def _float_dtype(name: str, entry: _Entry) -> str:
    if entry.dtype not in _WIDTHS:
        raise ModelError(
            f"tensor {name} in {entry.file.name}",
            got=f"dtype {entry.dtype}",
            expected=f"one of {', '.join(_WIDTHS)}",
            next_step="Use the unquantized checkpoint; bespoke quantizes by itself",
        )
    return entry.dtype


def _sharded(folder: Path) -> dict[str, _Entry]:
    path = folder / INDEX
    try:
        index = _json(path, read_plain(path))
    except OSError as error:
        raise _damaged(path, error.strerror or str(error), "a readable file") from None
    mapping = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(mapping, dict) or not all(isinstance(value, str) for value in mapping.values()):
        raise _damaged(path, "no weight_map", "an object weight_map from tensor name to file name")

    entries: dict[str, _Entry] = {}
    for file in sorted(set(mapping.values())):
        if Path(file).name != file:
            raise _damaged(path, f"the file name {file!r}", "plain file names within the folder")
        held, _ = _header(folder / file)
        for name, where in mapping.items():
            if where != file:
                continue
            if name not in held:
                raise ModelError(
                    f"tensor {name}",
                    got=f"none of this name in {folder / file}",
                    expected=f"it there, as {INDEX} says",
                    next_step="Download the folder again",
                )
            entries[name] = held[name]
    return entries


def _header(path: Path) -> tuple[dict[str, _Entry], dict[str, str]]:
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(_MAX_HEADER_BYTES, size - 8):
                raise _damaged(path, f"a header of {length} bytes in a file of {size}", "a header within the file")
            header = _json(path, file.read(length))
    except OSError as error:
        raise _damaged(path, error.strerror or str(error), "a readable file") from None
    if not isinstance(header, dict):
        raise _damaged(path, "a header that is no object", "an object from tensor name to dtype, shape and offsets")

    metadata = header.pop("__metadata__", None)
    if metadata is None:  # MLX writes null where there is none
        metadata = {}
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise _damaged(path, "__metadata__ other than texts by name", "texts by name")
    return {name: _entry(path, name, fields, 8 + length, size) for name, fields in header.items()}, metadata


def _entry(path: Path, name: str, fields: Any, data: int, size: int) -> _Entry:
    try:
        dtype, shape = fields["dtype"], tuple(int(n) for n in fields["shape"])
        start, stop = (int(n) for n in fields["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise _damaged(path, f"no usable entry for {name}", "dtype, shape and two data_offsets") from None
    held = stop - start
    if start < 0 or min(shape, default=0) < 0 or data + stop > size or held < 0:
        raise _damaged(path, f"{name} at bytes {start} to {stop}", f"bytes within the {size - data} of data")
    if dtype in _WIDTHS and held != prod(shape) * _WIDTHS[dtype]:
        raise _damaged(path, f"{held} bytes for {name}", f"{prod(shape) * _WIDTHS[dtype]}, by its shape {list(shape)}")
    return _Entry(path, str(dtype), shape, data + start)


def _json(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _damaged(path, "text that is no JSON", "a JSON header") from None


def _damaged(path: Path, got: str, expected: str) -> ModelError:
    return ModelError(str(path), got=got, expected=expected, next_step="Download or write the file again")
