# SPDX-License-Identifier: Apache-2.0
"""What a state holds, read without any code of bespoke: by tests/state_reader, or as rows of a query.

Both run in a process of their own, since no process that has a state open may read its files.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from bespoke.rules.batches import Row

READER = Path(__file__).resolve().parents[1] / "state_reader"
_ROW = "r.tokens, mask, rejected_tokens, rejected_mask"
_RUN_ROWS = "run_examples u JOIN examples e ON key = u.example JOIN example_rows r ON r.example = key"
_QUERY = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from database import opened
with opened(Path(sys.argv[2])) as connection:
    found = [connection.execute(query).fetchall() for query in sys.argv[3:]]
print(json.dumps([[[each.hex() if isinstance(each, bytes) else each for each in row] for row in rows] for rows in found]))
"""


def read_state(state: Path, bundle: Path | None = None, forgotten: Sequence[str] = ()) -> dict[str, Any]:
    """Its JSON report: counts, "digest", "digests", "left", "broken"."""
    command = [sys.executable, "-I", "-S", str(READER), str(state), "--json"]
    command += [] if bundle is None else ["--bundle", str(bundle)]
    command += ["--forgotten", *forgotten] if forgotten else []
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == "", done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if found["broken"] else 0), done
    return found


def broken_promises(state: Path, bundle: Path | None = None, forgotten: Sequence[str] = ()) -> set[str]:
    return {one["promise"] for one in read_state(state, bundle, forgotten)["broken"]}


def select(state: Path, query: str) -> list[list[Any]]:
    """Rows of a query; blobs as hexadecimal digits."""
    (rows,) = select_all(state, query)
    return rows


def select_all(state: Path, *queries: str) -> list[list[list[Any]]]:
    """Rows of each query, all of one moment."""
    command = [sys.executable, "-I", "-S", "-c", _QUERY, str(READER), str(state), *queries]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows: list[list[list[Any]]] = json.loads(done.stdout)
    return rows


def newest_run(state: Path) -> dict[str, Any]:
    """id, method, seed, settings, steps, step, cursor, started_from, ended_because."""
    names = ("id", "method", "seed", "settings", "steps", "step", "cursor", "started_from", "ended_because")
    ((*values,),) = select(state, f"SELECT {', '.join(names)} FROM runs ORDER BY id DESC LIMIT 1")
    found = dict(zip(names, values, strict=True))
    return {**found, "settings": json.loads(found["settings"]), "cursor": json.loads(found["cursor"])}


def ended_because(state: Path, run: int) -> str | None:
    """None while it has not ended."""
    ((found,),) = select(state, f"SELECT ended_because FROM runs WHERE id = {run}")
    return None if found is None else str(found)


def example_ids(state: Path, run: int) -> list[str]:
    query = f"SELECT id FROM run_examples JOIN examples ON key = example WHERE run = {run} ORDER BY position"
    return [id for (id,) in select(state, query)]


def metrics(state: Path, run: int) -> list[dict[str, Any]]:
    """Metrics of all committed steps."""
    journaled, others = (
        f"SELECT step, metrics FROM journal WHERE run = {run}",
        f"SELECT step, json FROM metrics WHERE run = {run}",
    )
    return [json.loads(text) for _, text in select(state, f"{journaled} UNION ALL {others} ORDER BY 1")]


def rows_of_split(state: Path, split: str) -> list[Row]:
    """Rows of tokens of all examples of a split, in the order in which they were added."""
    rows = f"SELECT {_ROW} FROM example_rows r JOIN examples ON key = example"
    return _rows(select(state, f"{rows} WHERE split = '{split}' ORDER BY key, row"))


def rows_of_run(state: Path, split: str = "train") -> list[Row]:
    """Those of the examples that the newest run sees, in its order."""
    return _rows(
        select(
            state,
            f"SELECT {_ROW} FROM {_RUN_ROWS} WHERE split = '{split}' AND run = (SELECT max(id) FROM runs) ORDER BY position, r.row",
        )
    )


def held_out_of_run(state: Path) -> list[tuple[str, list[Row]]]:
    """Ids and rows of the held-out examples that the newest run sees, in its order."""
    found = select(
        state,
        f"SELECT e.id, {_ROW} FROM {_RUN_ROWS} "
        "WHERE split = 'validation' AND run = (SELECT max(id) FROM runs) ORDER BY position, r.row",
    )
    by_id: dict[str, list[list[Any]]] = {}
    for id, *row in found:
        by_id.setdefault(id, []).append(row)
    return [(id, _rows(rows)) for id, rows in by_id.items()]


def _rows(found: list[list[Any]]) -> list[Row]:
    return [
        Row(*_row(tokens, mask), None if rejected is None else Row(*_row(rejected, rejected_mask)))
        for tokens, mask, rejected, rejected_mask in found
    ]


def _row(tokens: str, mask: str) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(bytes.fromhex(tokens), "<i4").astype(np.int32), np.frombuffer(bytes.fromhex(mask), np.uint8)


def journal(state: Path) -> list[tuple[int, list[float]]]:
    """Number and recorded values of each step of the newest run that was kept."""
    query = "SELECT step, recorded FROM journal WHERE NOT rejected AND run = (SELECT max(id) FROM runs) ORDER BY step"
    return [(step, np.frombuffer(bytes.fromhex(values), "<f4").tolist()) for step, values in select(state, query)]


def accepted(state: Path) -> dict[str, np.ndarray]:
    """The adapter of the newest version."""
    return _tensors(state, "SELECT file FROM versions ORDER BY id DESC LIMIT 1")


def slot(state: Path) -> dict[str, np.ndarray]:
    """Adapter and optimizer state of the newest slot."""
    return _tensors(state, "SELECT file FROM slots ORDER BY id DESC LIMIT 1")


def _tensors(state: Path, query: str) -> dict[str, np.ndarray]:
    ((file,),) = select(state, query)
    found: dict[str, np.ndarray] = safetensors.numpy.load((state / file).read_bytes())
    return found
