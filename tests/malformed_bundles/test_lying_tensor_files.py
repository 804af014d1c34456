# SPDX-License-Identifier: Apache-2.0
"""A tensor file of a state that lies about itself under a right hash is refused."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import StateError
from tests.malformed_bundles.states import DEEP, edit, filled, folder, read_all, the_slot
from tests.native.state.states import slot_tensors

__all__ = ["filled", "folder"]


def tensor_file(entries: Any, data: bytes, length: int | None = None, text: bytes | None = None) -> bytes:
    header = json.dumps(entries, separators=(",", ":")).encode() if text is None else text
    header += b" " * (-(8 + len(header)) % 64)
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def good_entries() -> tuple[dict[str, Any], bytes]:
    entries, data = {}, b""
    for name, tensor in sorted(slot_tensors(1).items()):
        start = len(data)
        data += tensor.tobytes()
        entries[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, len(data)]}
    return entries, data


NAME = "block_00.q_proj.lora_A"


def changed(**changes: Any) -> bytes:
    entries, data = good_entries()
    entries[NAME] = {**entries[NAME], **changes}
    return tensor_file(entries, data)


def without(key: str) -> bytes:
    entries, data = good_entries()
    del entries[NAME][key]
    return tensor_file(entries, data)


def renamed(new: str) -> bytes:
    entries, data = good_entries()
    return tensor_file({new if name == NAME else name: entry for name, entry in entries.items()}, data)


def twice() -> bytes:
    entries, data = good_entries()
    text = json.dumps(entries)
    return tensor_file(None, data, text=f"{text[:-1]}, {json.dumps(NAME)}: {json.dumps(entries[NAME])}}}".encode())


LYING: dict[str, Callable[[], bytes]] = {
    "length of the header 2^64 - 1": lambda: tensor_file({}, b"", length=2**64 - 1),
    "length past the end": lambda: tensor_file({}, b"", length=3),
    "length 0": lambda: tensor_file({}, b"", length=0),
    "no tensors": lambda: tensor_file({}, b""),
    "a list": lambda: tensor_file([], b""),
    "a number": lambda: tensor_file(7, b""),
    "nested deep": lambda: tensor_file(None, b"", text=DEEP.encode()),
    "no UTF-8": lambda: tensor_file(None, b"", text=b'{"\xff": 1}'),
    "a tensor twice": twice,
    "another dtype": lambda: changed(dtype="F16"),
    "dtype that is a list": lambda: changed(dtype=["F32"]),
    "huge shape": lambda: changed(shape=[2**62, 2**62]),
    "shape of another adapter": lambda: changed(shape=[6, 2]),
    "negative side": lambda: changed(shape=[-2, -6]),
    "side that is a float": lambda: changed(shape=[2.0, 6]),
    "side that is true": lambda: changed(shape=[True, 12]),
    "many sides": lambda: changed(shape=[1] * 100 + [12]),
    "offsets past the end": lambda: changed(data_offsets=[0, 2**60]),
    "negative offsets": lambda: changed(data_offsets=[-48, 0]),
    "offsets swapped": lambda: changed(data_offsets=[48, 0]),
    "offsets that overlap": lambda: changed(data_offsets=[4, 52]),
    "one offset": lambda: changed(data_offsets=[0]),
    "a key more": lambda: changed(extra=1),
    "no shape": lambda: without("shape"),
    "no offsets": lambda: without("data_offsets"),
    "another name": lambda: renamed("block_09.q_proj.lora_A"),
    "a name of another's state": lambda: renamed(".m"),
    "bytes after the end": lambda: tensor_file(*good_entries()) + b"\0\0\0\0",
}


@pytest.mark.parametrize("what", LYING)
def test_a_tensor_file_that_lies_under_a_right_hash(folder: Path, what: str) -> None:
    """From a writer of both database and file: still an error, not a read outside the file."""
    content = LYING[what]()
    the_slot(folder).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit(folder, "UPDATE slots SET sha256 = ?, bytes = ?", values=(digest, len(content)))
    with pytest.raises(StateError):
        read_all(folder)


def test_the_file_that_the_liars_start_from_is_taken(folder: Path) -> None:
    content = tensor_file(*good_entries())
    the_slot(folder).write_bytes(content)
    edit(folder, "UPDATE slots SET sha256 = ?, bytes = ?", values=(hashlib.sha256(content).hexdigest(), len(content)))
    assert read_all(folder)["slot"]
