# SPDX-License-Identifier: Apache-2.0
"""Accepted adapters: the newest one answers, three are kept, the one that an unfinished run started from besides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.errors import StateError
from bespoke.state import runs, tensor_files
from bespoke.state.database import Database, internal_json, stored_json
from bespoke.state.lock import now
from bespoke.state.records import Version

VERSIONS_KEPT = 3
FORGOTTEN = "example_forgotten"
ROLLED_BACK = "rolled_back"

_COLUMNS = "id, run, step, metrics, accepted_at, source"


def accept(
    database: Database,
    folder: Path,
    adapter_shapes: tensor_files.Shapes,
    run_id: int | None,
    tensors: Mapping[str, np.ndarray],
    metrics: dict[str, Any],
    source: str | None = None,
) -> int | None:
    """Keep an adapter as the one that answers; None where its run has seen what is forgotten, or is undone."""
    tensor_files.check_tensors(tensors, adapter_shapes, with_state=False)
    text = internal_json(metrics, "metrics of an adapter")
    (number,) = database.read("SELECT coalesce(max(id), 0) + 1 FROM versions")[0]
    record = tensor_files.write(folder, tensor_files.ACCEPTED, number, tensors)
    with runs.undone_when_full(folder, record), database.transaction() as connection:
        step = 0
        if run_id is not None:
            found = connection.execute("SELECT step, ended_because FROM runs WHERE id = ?", (run_id,)).fetchone()
            if found is None or found[1] in (FORGOTTEN, ROLLED_BACK):
                return None
            step = found[0]
        version = connection.execute(
            "INSERT INTO versions (run, step, metrics, source, file, sha256, bytes, accepted_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (run_id, step, text, source, record.file, record.sha256, record.bytes, now()),
        ).lastrowid
        connection.execute(
            "DELETE FROM versions WHERE id NOT IN (SELECT id FROM versions ORDER BY id DESC LIMIT ?) "
            "AND id NOT IN (SELECT started_from FROM runs WHERE ended_because IS NULL AND started_from IS NOT NULL)",
            (VERSIONS_KEPT,),
        )
    return version


def listed(database: Database) -> list[Version]:
    """Accepted adapters, oldest first."""
    rows = database.read(f"SELECT {_COLUMNS} FROM versions ORDER BY id")
    return [_version(row) for row in rows]


def _version(row: tuple[Any, ...]) -> Version:
    id, run, step, text, accepted_at, source = row
    return Version(id, run, step, stored_json(text, f"metrics of adapter {id}"), accepted_at, source)


def current(database: Database) -> Version | None:
    """The adapter that answers; None for the base."""
    found = listed(database)
    return found[-1] if found else None


def load(
    database: Database, folder: Path, adapter_shapes: tensor_files.Shapes, version_id: int
) -> dict[str, np.ndarray]:
    """Tensors of an accepted adapter, verified. Under the lock on files."""
    rows = database.read("SELECT file, sha256, bytes FROM versions WHERE id = ?", (version_id,))
    if not rows:
        raise StateError(
            f"adapter version {version_id}",
            got="no such version",
            expected="one of those accepted() lists",
            next_step="Ask current_version(): it may have been rolled back or forgotten",
        )
    return tensor_files.read(folder, tensor_files.FileRecord(*rows[0]), adapter_shapes, with_state=False)


def answering(
    database: Database, folder: Path, adapter_shapes: tensor_files.Shapes
) -> tuple[Version, dict[str, np.ndarray]] | None:
    """The adapter that answers and its tensors, of one moment; None for the base. Under the lock on files."""
    rows = database.read(f"SELECT {_COLUMNS}, file, sha256, bytes FROM versions ORDER BY id DESC LIMIT 1")
    if not rows:
        return None
    record = tensor_files.FileRecord(*rows[0][6:])
    return _version(rows[0][:6]), tensor_files.read(folder, record, adapter_shapes, with_state=False)


def rollback(database: Database) -> None:
    """Drop the adapter that answers, and the unfinished run, which would bring it back. The caller sweeps files."""
    with database.transaction() as connection:
        newest = connection.execute("SELECT max(id) FROM versions").fetchone()[0]
        if newest is None:
            return
        connection.execute("DELETE FROM versions WHERE id = ?", (newest,))
        run = connection.execute("SELECT id FROM runs WHERE ended_because IS NULL").fetchone()
        if run is not None:
            runs.end(database, run[0], ROLLED_BACK)
