# SPDX-License-Identifier: Apache-2.0
"""What a state holds and which locks are on it, read without code of bespoke: plain SQLite in another process, and /proc/locks.

Nothing here opens a file of a state in the process that calls it: closing one would drop that process's locks on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np  # c_api.py runs without site-packages

_READ = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1] + "/state.sqlite", timeout=60)
rows = [list(row) for row in connection.execute(sys.argv[2])]
print(json.dumps([rows, connection.execute("PRAGMA integrity_check").fetchone()[0]]))
"""


def read(state: Path, sql: str) -> list[list[Any]]:
    """Rows of a statement, in a process of its own; the database must be whole."""
    done = subprocess.run([sys.executable, "-S", "-c", _READ, str(state), sql], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows, whole = json.loads(done.stdout)
    assert whole == "ok"
    return list(rows)


def example_ids(state: Path) -> set[str]:
    return {row[0] for row in read(state, "SELECT id FROM examples")}


def locks(state: Path, pid: int) -> set[tuple[str, str, str]]:
    """(file, kind, first byte) of the POSIX locks that a process holds on the database of a state."""
    return _held("POSIX", [state / name for name in ("state.sqlite", "state.sqlite-shm", "state.sqlite-wal")], pid)


def _held(wanted: str, files: list[Path], pid: int) -> set[tuple[str, str, str]]:
    names = {}
    for path in files:
        if path.exists():
            found = os.stat(path)
            names[f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"] = path.name
    held = set()
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, _, mode, owner, inode, first, *_ = line.split()
        if kind == wanted and int(owner) == pid and inode in names:
            held.add((names[inode], mode, first))
    return held


def write(state: Path, sql: str) -> None:
    """A change by plain SQLite, in a process of its own."""
    program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit(); c.close()"
    subprocess.run([sys.executable, "-S", "-c", program, str(state / "state.sqlite"), sql], check=True)


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """A tensor file as the store lays it out: keys in one order, no spaces, data from a multiple of 64 bytes on."""
    header, at = {}, 0
    for name in sorted(tensors):
        end = at + tensors[name].nbytes
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    data = b"".join(tensors[name].tobytes() for name in sorted(tensors))
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def is_marked_as_read(path: Path, pid: int) -> bool:
    """Whether a process holds the shared lock by which readers of a tensor file are known."""
    return any(mode == "READ" for _, mode, _ in _held("FLOCK", [path], pid))


def bytes_of(path: Path) -> bytes:
    """Bytes of any file of a state, read by another process."""
    return subprocess.run(["cat", str(path)], capture_output=True, check=True).stdout


# What SQLite holds for as long as a connection to a database with a write-ahead log is open: without the first, another connection
# that is closed takes itself for the last one and deletes the log.
OPEN = {("state.sqlite", "READ", str(0x40000000 + 2)), ("state.sqlite-shm", "READ", "128")}
