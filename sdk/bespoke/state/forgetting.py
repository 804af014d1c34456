# SPDX-License-Identifier: Apache-2.0
"""Forgetting: what goes when an example goes, and when everything learned goes.

A run has *seen* an example if it lists it, or started from an adapter whose run has seen it. Whatever such a run left
is deleted: accepted adapters, slots, and its journal too, since a journal and a seed are the adapter in another form.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from bespoke.errors import StateLocked
from bespoke.state import examples, lock, tensor_files
from bespoke.state.database import Database
from bespoke.state.errors import from_os_error
from bespoke.state.records import Forgotten
from bespoke.state.versions import FORGOTTEN

SCRATCH = "scratch"

_SEEN = """
WITH RECURSIVE seen (run) AS (
  SELECT run FROM run_examples WHERE example = ?
  UNION SELECT runs.id FROM runs JOIN seen ON runs.parent = seen.run
) SELECT run FROM seen
"""


def forget(database: Database, id: str) -> Forgotten:
    """Delete an example and all that was learned from it, in one transaction. The caller sweeps and scrubs."""
    examples.check_id(id)
    with database.transaction() as connection:
        found = connection.execute("SELECT key FROM examples WHERE id = ?", (id,)).fetchone()
        if found is None:
            return Forgotten(example=False, accepted_deleted=0, run_stopped=False)
        database.example_counts = None
        accepted, stopped = 0, False
        for (run,) in connection.execute(_SEEN, found).fetchall():
            accepted += connection.execute("DELETE FROM versions WHERE run = ?", (run,)).rowcount
            stopped |= _forget_run(connection, run)
        connection.execute("DELETE FROM examples WHERE key = ?", found)
    return Forgotten(example=True, accepted_deleted=accepted, run_stopped=stopped)


def _forget_run(connection: sqlite3.Connection, run: int) -> bool:
    """True where the run was unfinished."""
    for table in ("slots", "journal", "metrics"):
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    unfinished = connection.execute("SELECT 1 FROM runs WHERE id = ? AND ended_because IS NULL", (run,)).fetchone()
    connection.execute(
        "UPDATE runs SET ended_because = ?, ended_at = coalesce(ended_at, ?), cursor = '{}' WHERE id = ?",
        (FORGOTTEN, lock.now(), run),
    )
    return unfinished is not None


def forget_all_runs(database: Database) -> None:
    """Delete all runs, slots, journals and adapters; examples stay. The caller sweeps and scrubs."""
    with database.transaction() as connection:
        connection.execute("DELETE FROM versions")
        connection.execute("DELETE FROM runs")  # cascades to slots, journal, metrics, lists of examples


def erase_scratch(folder: Path) -> None:
    """Erase what a trainer left in its scratch file; a living one holds its lock and erases its own when it ends."""
    if not os.path.lexists(folder / SCRATCH):
        return
    try:
        with lock.trainer_lock(folder, "erasing the scratch file"):
            remove_scratch(folder, overwrite=True)
    except StateLocked:
        return


def remove_scratch(folder: Path, *, overwrite: bool) -> None:
    """Remove the scratch file. StateError where it cannot be."""
    path = folder / SCRATCH
    try:
        if path.is_file() or path.is_symlink():
            tensor_files.erase(path, overwrite=overwrite)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
