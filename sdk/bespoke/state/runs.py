# SPDX-License-Identifier: Apache-2.0
"""Runs, their committed steps and their journal.

A commit is a tensor file, flushed, then one transaction that names it. A run may end under its trainer's hands (an
example is forgotten, a rollback, a reset, by another process): commits then write nothing and say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.errors import DiskFull, StateError
from bespoke.state import examples, tensor_files
from bespoke.state.database import Database, internal_json, stored_json
from bespoke.state.errors import damaged
from bespoke.state.lock import now
from bespoke.state.records import JournalRow, Run, Slot
from bespoke.state.schema import MAX_VALUE_BYTES

SLOTS_KEPT = 2
RESET = "reset"
_LARGEST = 2**63 - 1

_COLUMNS = "id, method, seed, settings, steps, started_from, step, cursor, ended_because, started_at, ended_at"


def start(
    database: Database,
    method: str,
    seed: int,
    settings: dict[str, Any],
    example_ids: Sequence[str],
    steps: int,
    started_from: int | None,
) -> Run:
    """A new run at step 0. StateError while another is unfinished, DataError for an example that is not there."""
    _check_number("seed", seed)
    _check_number("steps", steps)
    text = internal_json(settings, "settings of a run")
    with database.transaction() as connection:
        unfinished = connection.execute("SELECT id, method FROM runs WHERE ended_because IS NULL").fetchone()
        if unfinished is not None:
            raise StateError(
                "start of a run",
                got=f"run {unfinished[0]} ({unfinished[1]}), which is unfinished",
                expected="one run at a time",
                next_step="Continue it, or end it first with end_run",
            )
        parent = None
        if started_from is not None:
            found = connection.execute("SELECT run FROM versions WHERE id = ?", (started_from,)).fetchone()
            if found is None:
                raise StateError(
                    f"adapter version {started_from}",
                    got="no such version (forgotten or rolled back meanwhile?)",
                    expected="an accepted one",
                    next_step="Start from current_version()",
                )
            parent = found[0]
        run = connection.execute(
            "INSERT INTO runs (method, seed, settings, steps, started_from, parent, step, cursor, started_at) "
            "VALUES (?, ?, ?, ?, ?, ?, 0, '{}', ?)",
            (method, seed, text, steps, started_from, parent, now()),
        ).lastrowid
        assert run is not None
        for position, id in enumerate(example_ids):
            key = connection.execute("SELECT key FROM examples WHERE id = ?", (id,)).fetchone()
            if key is None:
                raise examples.unknown(id)
            connection.execute("INSERT INTO run_examples VALUES (?, ?, ?)", (run, position, key[0]))
    return get(database, run)


def get(database: Database, run_id: int) -> Run:
    """StateError for a run that is not there."""
    with database.snapshot():
        rows = database.read(f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (run_id,))
        if not rows:
            raise StateError(
                f"run {run_id}", got="no such run", expected="one of this state", next_step="Ask current_run()"
            )
        ids = database.read(
            "SELECT examples.id FROM run_examples JOIN examples ON key = example WHERE run = ? ORDER BY position",
            (run_id,),
        )
    id, method, seed, settings, steps, started_from, step, cursor, ended_because, started_at, ended_at = rows[0]
    return Run(
        id,
        method,
        seed,
        stored_json(settings, f"settings of run {id}"),
        steps,
        started_from,
        tuple(row[0] for row in ids),
        step,
        stored_json(cursor, f"cursor of run {id}"),
        ended_because,
        started_at,
        ended_at,
    )


def current(database: Database) -> Run | None:
    """The unfinished run."""
    with database.snapshot():
        rows = database.read("SELECT id FROM runs WHERE ended_because IS NULL ORDER BY id")
        if len(rows) > 1:
            raise damaged(database.subject, f"{len(rows)} unfinished runs", "one at most")
        return get(database, rows[0][0]) if rows else None


def ended_because(database: Database, run_id: int) -> str | None:
    """Why a run ended; None while it is unfinished; "reset" where it is gone."""
    rows = database.read("SELECT ended_because FROM runs WHERE id = ?", (run_id,))
    return rows[0][0] if rows else RESET


def end(database: Database, run_id: int, reason: str) -> bool:
    """Mark a run as ended and drop its slots; False where it had ended before. The caller sweeps files."""
    with database.transaction() as connection:
        changed = connection.execute(
            "UPDATE runs SET ended_because = ?, ended_at = ? WHERE id = ? AND ended_because IS NULL",
            (reason, now(), run_id),
        ).rowcount
        if changed:
            connection.execute("DELETE FROM slots WHERE run = ?", (run_id,))
    return changed > 0


def commit_step(
    database: Database,
    folder: Path,
    adapter_shapes: tensor_files.Shapes,
    run_id: int,
    step: int,
    cursor: dict[str, Any],
    tensors: Mapping[str, np.ndarray],
    metrics: Sequence[dict[str, Any]],
) -> bool:
    """Make `step` the committed one; False, and nothing written, where the run has ended. Under the lock on files."""
    tensor_files.check_tensors(tensors, adapter_shapes, with_state=True)
    cursor_text = internal_json(cursor, "cursor of a step")
    metric_texts = [internal_json(entry, "metrics of a step") for entry in metrics]
    at = _committed_step(database, run_id)
    if at is None:
        return False
    _check_order(run_id, step, at)
    (number,) = database.read("SELECT coalesce(max(id), 0) + 1 FROM slots")[0]
    record = tensor_files.write(folder, tensor_files.SLOT, number, tensors)
    with undone_when_full(folder, record), database.transaction() as connection:
        committed = _advance(connection, run_id, step, cursor_text)
        if committed:
            connection.execute(
                "INSERT INTO slots (run, step, cursor, file, sha256, bytes) VALUES (?, ?, ?, ?, ?, ?)",
                (run_id, step, cursor_text, record.file, record.sha256, record.bytes),
            )
            connection.executemany(
                "INSERT INTO metrics (run, step, json) VALUES (?, ?, ?)",
                [(run_id, step, text) for text in metric_texts],
            )
            connection.execute(
                "DELETE FROM slots WHERE run = ? AND id NOT IN "
                "(SELECT id FROM slots WHERE run = ? ORDER BY id DESC LIMIT ?)",
                (run_id, run_id, SLOTS_KEPT),
            )
    return committed


def append_journal(database: Database, run_id: int, rows: Sequence[JournalRow]) -> bool:
    """Append steps in one transaction; False, and nothing written, where the run has ended."""
    stored = []
    for row in rows:
        _check_number("step", row.step)
        cursor = internal_json(row.cursor, "cursor of a step")
        metrics = internal_json(row.metrics, "metrics of a step")
        stored.append((run_id, row.step, cursor, _recorded(row), int(row.rejected), metrics))
    with database.transaction() as connection:
        found = connection.execute(
            "SELECT step, EXISTS (SELECT 1 FROM journal WHERE run = id) OR EXISTS (SELECT 1 FROM slots WHERE run = id) "
            "FROM runs WHERE id = ? AND ended_because IS NULL",
            (run_id,),
        ).fetchone()
        if found is None:
            return False
        least = found[0] + 1 if found[1] else 0
        for entry in stored:
            if entry[1] < least:
                raise _out_of_order(run_id, entry[1], least)
            least = entry[1] + 1
        connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)", stored)
        if stored:
            _advance(connection, run_id, stored[-1][1], stored[-1][2])
    return True


def journal(database: Database, run_id: int, after_step: int) -> list[JournalRow]:
    """The journaled steps after `after_step`, in order."""
    rows = database.read(
        "SELECT step, cursor, recorded, rejected, metrics FROM journal WHERE run = ? AND step > ? ORDER BY step",
        (run_id, after_step),
    )
    subject = f"journal of run {run_id}"
    found = []
    for step, cursor, recorded, rejected, metrics in rows:
        if len(recorded) % 4:
            raise damaged(subject, f"{len(recorded)} bytes of values at step {step}", "4 bytes a value")
        values = np.frombuffer(recorded, "<f4").tolist()
        entry = (stored_json(cursor, subject), values, bool(rejected), stored_json(metrics, subject))
        found.append(JournalRow(step, *entry))
    return found


def latest_slot(database: Database, folder: Path, adapter_shapes: tensor_files.Shapes, run_id: int) -> Slot | None:
    """The last committed slot; StateError where its file is not what was committed. Under the lock on files."""
    rows = database.read(
        "SELECT step, cursor, file, sha256, bytes FROM slots WHERE run = ? ORDER BY id DESC LIMIT 1", (run_id,)
    )
    if not rows:
        return None
    step, cursor, *record = rows[0]
    tensors = tensor_files.read(folder, tensor_files.FileRecord(*record), adapter_shapes, with_state=True)
    return Slot(step, stored_json(cursor, f"cursor of run {run_id}"), tensors)


def metrics(database: Database, run_id: int) -> list[dict[str, Any]]:
    """Metrics of a run's committed steps, in order, journaled ones included."""
    rows = database.read(
        "SELECT metrics, step AS s, 0 AS kind, 0 AS n FROM journal WHERE run = ? "
        "UNION ALL SELECT json, step, 1, id FROM metrics WHERE run = ? ORDER BY s, kind, n",
        (run_id, run_id),
    )
    return [entry for row in rows if (entry := stored_json(row[0], f"metrics of run {run_id}"))]


@contextmanager
def undone_when_full(folder: Path, record: tensor_files.FileRecord) -> Iterator[None]:
    """Remove a new tensor file if the transaction that would name it finds the disk full.

    Only then: SQLite has written no commit record. After another failure (a flush that failed, an interrupt) it may
    yet turn out to be committed, so the file stays until a later sweep asks the database.
    """
    try:
        yield
    except DiskFull as error:
        if "SQLITE_FULL" in error.got:
            tensor_files.discard(folder / record.file)
        raise


def _committed_step(database: Database, run_id: int) -> int | None:
    rows = database.read("SELECT step FROM runs WHERE id = ? AND ended_because IS NULL", (run_id,))
    return int(rows[0][0]) if rows else None


def _advance(connection: Any, run_id: int, step: int, cursor: str) -> bool:
    """Move an unfinished run to `step`; False where it has ended meanwhile."""
    changed: int = connection.execute(
        "UPDATE runs SET step = ?, cursor = ? WHERE id = ? AND ended_because IS NULL", (step, cursor, run_id)
    ).rowcount
    return changed > 0


def _recorded(row: JournalRow) -> bytes:
    given = np.asarray(row.values, dtype=np.float64)
    with np.errstate(over="ignore"):
        kept = given.astype("<f4")
    exact = (kept.astype(np.float64) == given) | np.isnan(given)
    if given.ndim != 1 or not exact.all() or kept.nbytes > MAX_VALUE_BYTES:
        raise StateError(
            f"journal values of step {row.step}",
            got="numbers that 32-bit floats do not hold" if given.ndim == 1 else f"shape {list(given.shape)}",
            expected="a flat list of 32-bit floats, so that a replay has the same bits",
            next_step="Round them to float32 before they are used and recorded",
        )
    return kept.tobytes()


def _check_number(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise StateError(
            f"{name} of a run",
            got=repr(value)[:100],
            expected="an integer from 0 to 2^63 - 1",
            next_step=f"Mend the {name}",
        )


def _check_order(run_id: int, step: int, least: int) -> None:
    _check_number("step", step)
    if step < least:
        raise _out_of_order(run_id, step, least)


def _out_of_order(run_id: int, step: int, least: int) -> StateError:
    return StateError(
        f"run {run_id}",
        got=f"a commit of step {step}",
        expected=f"step {least} or later: what was committed is not taken back",
        next_step="Resume from latest_slot() and journal()",
    )
