# SPDX-License-Identifier: Apache-2.0
"""What each process meant to do and what it was told: one JSON object a line, on the disk before the process goes on.

`{"n", "t", "op", ...}` before an operation and `{"n", "t", "ack" | "error" | "raised": ...}` behind it. An operation without a
second line is in doubt: it was done or not, and stays so.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Journal:
    """A new file, to be written from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = itertools.count(1)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._write({"pid": os.getpid()})

    def begin(self, op: str, **intent: Any) -> int:
        number = next(self._numbers)
        self._write({"n": number, "op": op, **intent})
        return number

    def end(self, number: int, how: str, what: Any) -> None:
        """`how`: "ack", "error" or "raised"."""
        self._write({"n": number, how: what})

    def _write(self, fields: Mapping[str, Any]) -> None:
        os.write(self._file, json.dumps({**fields, "t": time.monotonic()}).encode() + b"\n")
        os.fsync(self._file)


@dataclass
class Operation:
    op: str
    start: float
    intent: dict[str, Any]
    where: str  # its journal
    pid: int
    end: float
    ack: Any = None
    error: list[str] | None = None  # kind, subject, what was got
    raised: str | None = None
    answers: list[str] = field(default_factory=list)  # the names of what stands behind it: one, or none in doubt

    @property
    def acknowledged(self) -> bool:
        return "ack" in self.answers

    @property
    def in_doubt(self) -> bool:
        return not self.answers


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """A line that a kill has torn was not finished: it does not count."""
    *whole, _ = path.read_bytes().split(b"\n")
    return (json.loads(line) for line in whole)


def operations_of(path: Path, ended: float) -> list[Operation]:
    """Operations in the journal of a process that has ended."""
    pid, by_number = 0, dict[int, Operation]()
    for entry in entries(path):
        number, at = entry.pop("n", 0), entry.pop("t")
        if not number:
            pid = entry["pid"]
        elif "op" in entry:
            op = entry.pop("op")
            by_number[number] = Operation(op, at, entry, path.stem, pid, end=ended)
        else:
            one = by_number[number]
            ((how, what),) = entry.items()
            one.end, one.answers = at, [*one.answers, how]
            setattr(one, how, what)
    return list(by_number.values())
