# SPDX-License-Identifier: Apache-2.0
"""Where the data of a zip's entries begins, by its headers alone: another reading than that of who aligned it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Stored(NamedTuple):
    method: int  # 0: stored
    begin: int  # position of the data in the file
    size: int


def number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def headers(path: Path) -> dict[str, Stored]:
    data = path.read_bytes()
    end = data.rindex(b"PK\x05\x06")
    at, found = number(data, end + 16, 4), {}
    for _ in range(number(data, end + 10, 2)):
        assert data[at : at + 4] == b"PK\x01\x02"
        method, size, local = number(data, at + 10, 2), number(data, at + 20, 4), number(data, at + 42, 4)
        name_size, rest = number(data, at + 28, 2), number(data, at + 30, 2) + number(data, at + 32, 2)
        name = data[at + 46 : at + 46 + name_size]
        assert data[local : local + 4] == b"PK\x03\x04"
        assert (number(data, local + 8, 2), number(data, local + 18, 4)) == (method, size), "the two headers disagree"
        assert data[local + 30 : local + 30 + number(data, local + 26, 2)] == name
        begin = local + 30 + number(data, local + 26, 2) + number(data, local + 28, 2)
        assert name.decode() not in found
        found[name.decode()] = Stored(method, begin, size)
        at += 46 + name_size + rest
    assert at == end
    return found
