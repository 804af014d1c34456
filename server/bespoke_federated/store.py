# SPDX-License-Identifier: Apache-2.0
"""What a server must not lose, in SQLite. All statements are in this file.

The journal is a write-ahead log, and a commit waits for the disk (synchronous FULL). So an answer that went out speaks of what a
killed process still knows. What a request changes and the request's counter change in one transaction.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bespoke.rules.guidance import Squares
from bespoke.rules.round_documents import ReceivedFile
from bespoke_federated.adapter import Received
from bespoke_federated.database import BUSY_SECONDS, locked, prepared, transaction, unusable
from bespoke_federated.directions import Directions
from bespoke_federated.guidance import Opening, kept_files
from bespoke_federated.rows import Assignment, Device, KeptFile, RoundRow, StepTexts, Token
from bespoke_federated.whole_file import FILES

__all__ = ["Store"]

VERSION = 1
DATABASE, LOCK = "edge.sqlite", "edge.lock"

SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE tokens (
    sha256 TEXT PRIMARY KEY,  -- of a token that enrols one device
    expires REAL NOT NULL,
    device TEXT  -- that used it
) STRICT;
CREATE TABLE devices (
    id TEXT PRIMARY KEY,
    public_key BLOB NOT NULL,
    counter INTEGER NOT NULL,  -- the last one that was accepted
    enrolled REAL NOT NULL
) STRICT;
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'open', 'combined', 'ended')),  -- waiting: for guidance
    opened REAL NOT NULL,
    started REAL NOT NULL,  -- when its deadline or its wait began to run, for the last time
    extensions INTEGER NOT NULL,  -- of the deadline
    ended REAL,
    groups INTEGER NOT NULL,  -- of directions that differ
    each INTEGER NOT NULL,  -- directions of a group
    coefficient REAL NOT NULL,  -- c and c' of what devices measure
    guidance_coefficient REAL NOT NULL,
    watched INTEGER NOT NULL,  -- groups at the end that measure z alone
    guidance TEXT,  -- its files as JSON; NULL: none
    guidance_bytes INTEGER NOT NULL,
    public_inside REAL NOT NULL,  -- squares of other public gradients, within the span and in all
    public_whole REAL NOT NULL,
    coefficients TEXT,  -- coefficients_text, from 'combined' on
    guided TEXT,  -- c' of the steps, where there is guidance
    half INTEGER,
    adapter TEXT  -- its sha256, from 'ended' on
) STRICT;
CREATE TABLE assignments (
    round INTEGER NOT NULL,
    device TEXT NOT NULL,
    first INTEGER NOT NULL,
    directions INTEGER NOT NULL,
    extension INTEGER NOT NULL,
    UNIQUE (round, device)
) STRICT;
CREATE TABLE numbers (
    round INTEGER NOT NULL,
    device TEXT NOT NULL,
    first INTEGER NOT NULL,
    numbers TEXT NOT NULL,
    late INTEGER NOT NULL,  -- 1: not counted
    UNIQUE (round, device)
) STRICT;
CREATE INDEX numbers_by_device ON numbers (device);
CREATE TABLE files (
    sha256 TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    path TEXT NOT NULL,  -- in the state's folder
    kind TEXT NOT NULL CHECK (kind IN ('snapshot', 'guidance')),
    round INTEGER NOT NULL,  -- after which the adapter was so, or which the guidance belongs to
    half INTEGER NOT NULL
) STRICT;
"""

# Later than version 1, which goes on with it.
OUTER = """
CREATE TABLE IF NOT EXISTS outer_shares (  -- of a device's numbers in a round: `bespoke.rules.one_sided`
    device TEXT NOT NULL,
    round INTEGER NOT NULL,
    share REAL NOT NULL,
    PRIMARY KEY (device, round)
) STRICT, WITHOUT ROWID
"""

_ROUND = (
    "number, state, started, extensions, groups, each, coefficient, guidance_coefficient, watched, guidance, "
    "public_inside, public_whole, coefficients, guided, half, adapter"
)
_FILE = "sha256, size, path, kind, round, half"


class Store:
    """The database of a state folder. Threads take turns: a transaction holds the store until its end."""

    def __init__(self, folder: Path, *, serves: bool = False) -> None:
        """Opens the state or makes it. `serves`: as the only process that does."""
        self.folder = folder
        self.shapes_of_guidance: Mapping[str, Received] = {}
        self._lock = threading.RLock()
        self._locked: int | None = None
        try:
            (folder / FILES).mkdir(parents=True, exist_ok=True)
            if serves:
                self._locked = locked(folder / LOCK, "a server")
            self._database = sqlite3.connect(
                folder / DATABASE, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise unusable(
                folder, type(error).__name__, "a folder with the state of a server, or an empty one"
            ) from None

    def close(self) -> None:
        with self._lock:
            self._database.close()
            if self._locked is not None:
                os.close(self._locked)
                self._locked = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes all changes of its body or none. It is on the disk when the body has ended."""
        with self._lock, transaction(self._database):
            yield

    # What the state belongs to

    def belongs_to(self, facts: dict[str, str]) -> None:
        """Notes what a new state belongs to. Raises StateError where it is something else."""
        with self.transaction():
            known = dict(self._all("SELECT key, value FROM about"))
            if not known:
                self._many("INSERT INTO about VALUES (?, ?)", list(facts.items()))
            elif known != facts:
                others = ", ".join(
                    sorted(key for key in known.keys() | facts.keys() if known.get(key) != facts.get(key))
                )
                raise unusable(
                    self.folder, f"the state of another bundle: {others}", "that of the bundle that is served"
                )

    # Tokens and devices

    def add_tokens(self, hashes: Sequence[str], expires: float) -> None:
        self._many("INSERT INTO tokens VALUES (?, ?, NULL)", [(sha256, expires) for sha256 in hashes])

    def token(self, sha256: str) -> Token | None:
        row = self._one("SELECT expires, device FROM tokens WHERE sha256 = ?", sha256)
        return row and Token(*row)

    def add_device(self, device: Device, token: str, now: float) -> None:
        self._run("UPDATE tokens SET device = ? WHERE sha256 = ?", device.id, token)
        self._run("INSERT INTO devices VALUES (?, ?, ?, ?)", *device, now)

    def device(self, id: str) -> Device | None:
        row = self._one("SELECT id, public_key, counter FROM devices WHERE id = ?", id)
        return row and Device(*row)

    def remove_device(self, id: str) -> bool:
        """Lets a device in no more, until it enrols again. What it has sent and spent stays. Returns whether it was there."""
        return self._run("DELETE FROM devices WHERE id = ?", id) == 1

    def raise_counter(self, device: str, counter: int) -> bool:
        """Whether the counter was above the last one. Then it is the last one."""
        return self._run("UPDATE devices SET counter = ? WHERE id = ? AND counter < ?", counter, device, counter) == 1

    def device_count(self) -> int:
        return int(self._one("SELECT COUNT(*) FROM devices")[0])

    # Rounds

    def last_round(self) -> RoundRow | None:
        return self._round(self._one(f"SELECT {_ROUND} FROM rounds ORDER BY number DESC LIMIT 1"))

    def last_ended(self) -> RoundRow | None:
        return self._round(self._one(f"SELECT {_ROUND} FROM rounds WHERE state = 'ended' ORDER BY number DESC LIMIT 1"))

    def round(self, number: int) -> RoundRow | None:
        return self._round(self._one(f"SELECT {_ROUND} FROM rounds WHERE number = ?", number))

    def round_after_which(self, adapter: str) -> RoundRow | None:
        """The last round after which the adapter had this hash."""
        sql = f"SELECT {_ROUND} FROM rounds WHERE adapter = ? ORDER BY number DESC LIMIT 1"
        return self._round(self._one(sql, adapter))

    def ended_after(self, number: int, most: int) -> list[RoundRow]:
        """The rounds behind one that have ended, in their order, at most so many."""
        sql = f"SELECT {_ROUND} FROM rounds WHERE number > ? AND state = 'ended' ORDER BY number LIMIT ?"
        return [row for found in self._all(sql, number, most) if (row := self._round(found))]

    def guidance_of(self, number: int) -> dict[str, np.ndarray]:
        """The guidance of a round by name. `shapes_of_guidance` says what it looks like."""
        row = self.round(number)
        return kept_files(self.folder, row.guidance if row else (), self.shapes_of_guidance)

    def coefficient_bytes_after(self, number: int) -> int:
        sql = """SELECT COALESCE(SUM(LENGTH(coefficients) + guidance_bytes), 0) FROM rounds
                 WHERE number > ? AND state = 'ended'"""
        return int(self._one(sql, number)[0])

    def guided_rounds(self, most: int) -> list[RoundRow]:
        """The first rounds with guidance that have ended, in their order."""
        sql = f"SELECT {_ROUND} FROM rounds WHERE guidance IS NOT NULL AND state = 'ended' ORDER BY number LIMIT ?"
        return [row for found in self._all(sql, most) if (row := self._round(found))]

    def add_round(self, number: int, state: Literal["waiting", "open"], measured: Directions, now: float) -> None:
        """Adds a round. One that waits may still get other directions (`open_waiting`)."""
        sql = """INSERT INTO rounds VALUES
                 (?, ?, ?, ?, 0, NULL, ?, ?, ?, ?, ?, NULL, 0, 0, 0, NULL, NULL, NULL, NULL)"""
        self._run(sql, number, state, now, now, *measured)

    def open_waiting(self, number: int, opening: Opening, now: float) -> None:
        """Opens a round with the guidance that came, and notes its files."""
        for file in opening.files:
            self.add_file(KeptFile(file.sha256, file.size, f"{FILES}/{file.sha256}", "guidance", number))
        sql = """UPDATE rounds SET state = 'open', started = ?, groups = ?, each = ?, coefficient = ?,
                 guidance_coefficient = ?, watched = ?, guidance = ?, guidance_bytes = ?, public_inside = ?,
                 public_whole = ? WHERE number = ? AND state = 'waiting'"""
        text = json.dumps([file.model_dump() for file in opening.files]) if opening.files else None
        size = sum(file.size for file in opening.files)
        self._run(sql, now, *opening.measured, text, size, *opening.public, number)

    def extend_round(self, number: int, now: float) -> None:
        self._run("UPDATE rounds SET extensions = extensions + 1, started = ? WHERE number = ?", now, number)

    def combine_round(self, number: int, step: StepTexts) -> None:
        """From now on the numbers of this round are late."""
        sql = """UPDATE rounds SET state = 'combined', coefficients = ?, guided = ?, half = ?
                 WHERE number = ? AND state = 'open'"""
        self._run(sql, step.coefficients, step.guided, int(step.half), number)

    def end_round(self, number: int, step: StepTexts, adapter: str, now: float) -> None:
        """Notes the step that was taken, and the hash of the adapter after it."""
        sql = """UPDATE rounds SET state = 'ended', coefficients = ?, guided = ?, half = ?, adapter = ?, ended = ?
                 WHERE number = ? AND state = 'combined'"""
        self._run(sql, step.coefficients, step.guided, int(step.half), adapter, now, number)

    # Assignments and numbers

    def assignment(self, round_number: int, device: str) -> Assignment | None:
        row = self._one(
            "SELECT first, directions FROM assignments WHERE round = ? AND device = ?", round_number, device
        )
        return row and Assignment(*row)

    def assign(self, round_number: int, device: str, assignment: Assignment, extension: int) -> None:
        self._run("INSERT INTO assignments VALUES (?, ?, ?, ?, ?)", round_number, device, *assignment, extension)

    def taken_groups(self, round_number: int, extension: int) -> dict[int, int]:
        """First direction -> devices that have answered for it, or were asked since the deadline was last extended."""
        sql = """SELECT a.first, COUNT(*) FROM assignments a LEFT JOIN numbers n ON n.round = a.round AND n.device = a.device
                 WHERE a.round = ? AND (a.extension = ? OR n.device IS NOT NULL) GROUP BY a.first"""
        return dict(self._all(sql, round_number, extension))

    def has_numbers(self, round_number: int, device: str) -> bool:
        return self._one("SELECT 1 FROM numbers WHERE round = ? AND device = ?", round_number, device) is not None

    def add_numbers(self, round_number: int, device: str, first: int, numbers: Sequence[float], *, late: bool) -> None:
        text = json.dumps(list(numbers))
        self._run("INSERT INTO numbers VALUES (?, ?, ?, ?, ?)", round_number, device, first, text, int(late))

    def number_count(self, round_number: int) -> int:
        return int(self._one("SELECT COUNT(*) FROM numbers WHERE round = ? AND late = 0", round_number)[0])

    def numbers(self, round_number: int) -> list[tuple[int, list[float]]]:
        """(first direction, numbers) of each device that counts, in the order in which they came."""
        return list(self.numbers_by_device(round_number).values())

    def numbers_by_device(self, round_number: int) -> dict[str, tuple[int, list[float]]]:
        """The same, with the devices that sent them."""
        sql = "SELECT device, first, numbers FROM numbers WHERE round = ? AND late = 0 ORDER BY rowid"
        return {device: (first, json.loads(text)) for device, first, text in self._all(sql, round_number)}

    def note_outer_shares(self, round_number: int, shares: Mapping[str, float]) -> None:
        """Notes `outer_shares` of a round by device. What is noted stays."""
        rows = [(device, round_number, share) for device, share in shares.items()]
        self._many("INSERT OR IGNORE INTO outer_shares VALUES (?, ?, ?)", rows)

    def outer_shares(self, device: str, most: int) -> list[float]:
        """The shares of a device in its last rounds, at most so many."""
        sql = "SELECT share FROM outer_shares WHERE device = ? ORDER BY round DESC LIMIT ?"
        return [share for (share,) in self._all(sql, device, most)]

    def rounds_told_by(self, device: str) -> int:
        """Rounds of which a device has sent numbers, late ones too."""
        return int(self._one("SELECT COUNT(*) FROM numbers WHERE device = ?", device)[0])

    def totals(self) -> dict[str, int]:
        """What the metrics say: numbers by whether they counted, and the rounds of the device that sent most."""
        late, on_time = (int(self._one("SELECT COUNT(*) FROM numbers WHERE late = ?", late)[0]) for late in (1, 0))
        most = self._one("SELECT COALESCE(MAX(c), 0) FROM (SELECT COUNT(*) c FROM numbers GROUP BY device)")[0]
        return {"late": late, "counted": on_time, "most_rounds": int(most)}

    # Files

    def add_file(self, file: KeptFile) -> None:
        """Notes a file. The same bytes may be those of several rounds: of the last one the row speaks."""
        self._run("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", *file[:5], int(file.half))

    def file(self, sha256: str) -> KeptFile | None:
        return self._file(self._one(f"SELECT {_FILE} FROM files WHERE sha256 = ?", sha256))

    def drop_file(self, sha256: str) -> None:
        """Forgets a file that is no longer there."""
        self._run("DELETE FROM files WHERE sha256 = ?", sha256)

    def drop_files_up_to(self, number: int) -> list[KeptFile]:
        """Forgets the files of rounds up to `number`, and returns them."""
        rows = self._all(f"DELETE FROM files WHERE round <= ? RETURNING {_FILE}", number)
        return [file for row in rows if (file := self._file(row))]

    def first_lost_after(self, number: int) -> int | None:
        """The first round behind one that has ended and whose guidance is no longer there."""
        sql = """SELECT r.number FROM rounds r, json_each(r.guidance) g WHERE r.number > ? AND r.state = 'ended'
                 AND NOT EXISTS (SELECT 1 FROM files WHERE sha256 = json_extract(g.value, '$.sha256'))
                 ORDER BY r.number LIMIT 1"""
        row = self._one(sql, number)
        return row and int(row[0])

    def newest_snapshot(self) -> KeptFile | None:
        return self._file(self._one(f"SELECT {_FILE} FROM files WHERE kind = 'snapshot' ORDER BY round DESC LIMIT 1"))

    def _prepare(self) -> None:
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        with self.transaction():
            prepared(self._database, self.folder, VERSION, SCHEMA)
            self._run(OUTER)

    @staticmethod
    def _round(row: Any) -> RoundRow | None:
        if row is None:
            return None
        files = tuple(ReceivedFile(**file) for file in json.loads(row[9] or "[]"))
        return RoundRow(
            *row[:4], Directions(*row[4:9]), files, Squares(*row[10:12]), *row[12:14], bool(row[14]), row[15]
        )

    @staticmethod
    def _file(row: Any) -> KeptFile | None:
        return None if row is None else KeptFile(*(*row[:5], bool(row[5])))

    def _run(self, sql: str, *values: Any) -> int:
        with self._lock:
            return self._database.execute(sql, values).rowcount

    def _many(self, sql: str, rows: Sequence[Any]) -> None:
        with self._lock:
            self._database.executemany(sql, rows)

    def _one(self, sql: str, *values: Any) -> Any:
        with self._lock:
            return self._database.execute(sql, values).fetchone()

    def _all(self, sql: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._database.execute(sql, values).fetchall()
