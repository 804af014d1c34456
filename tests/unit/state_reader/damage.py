# SPDX-License-Identifier: Apache-2.0
"""Ways to damage a copy of a real state."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

Damage = Callable[[Path], object]


def sql(*statements: str) -> Damage:
    """Changes in the database that none of its own checks stops."""

    def damage(state: Path) -> None:
        with closing(sqlite3.connect(state / "state.sqlite", isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for statement in statements:
                connection.execute(statement)

    return damage


def tensor_file(kind: str, change: Callable[[bytes], bytes], *, noted: bool = True) -> Damage:
    """Other content for the newest slot or accepted adapter; `noted`: the database is told its size and hash."""
    table = {"slot": "slots", "accepted": "versions"}[kind]

    def damage(state: Path) -> None:
        with closing(sqlite3.connect(state / "state.sqlite", isolation_level=None)) as connection:
            (name,) = connection.execute(f"SELECT file FROM {table} ORDER BY id DESC LIMIT 1").fetchone()
            data = change((state / name).read_bytes())
            (state / name).write_bytes(data)
            if noted:
                update = f"UPDATE {table} SET sha256 = ?, bytes = ? WHERE file = ?"
                connection.execute(update, (hashlib.sha256(data).hexdigest(), len(data), name))

    return damage


def header(change: Callable[[dict[str, dict[str, object]]], object]) -> Callable[[bytes], bytes]:
    """A tensor file with another header over the same data."""

    def changed(data: bytes) -> bytes:
        start = 8 + struct.unpack("<Q", data[:8])[0]
        entries = json.loads(data[8:start])
        change(entries)
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % 64)
        return struct.pack("<Q", len(text)) + text + data[start:]

    return changed


def more_versions(count: int) -> Damage:
    """Copies of the accepted adapter, under names and numbers of their own."""

    def damage(state: Path) -> None:
        with closing(sqlite3.connect(state / "state.sqlite", isolation_level=None)) as connection:
            (name,) = connection.execute("SELECT file FROM versions").fetchone()
            for number in range(2, 2 + count):
                copy = f"accepted_{number:08d}_{number:08x}.safetensors"
                shutil.copy(state / name, state / copy)
                connection.execute(
                    "INSERT INTO versions (run, step, metrics, source, file, sha256, bytes, accepted_at) "
                    "SELECT run, step, metrics, source, ?, sha256, bytes, accepted_at FROM versions WHERE id = 1",
                    (copy,),
                )

    return damage
