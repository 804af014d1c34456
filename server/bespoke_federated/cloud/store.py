# SPDX-License-Identifier: Apache-2.0
"""What a cloud must not lose, in SQLite: its rounds, which edges share them, and what each has collected.

A commit waits for the disk. So an order that went out speaks of what the next run of a killed cloud still knows.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from bespoke.rules.guidance import Squares
from bespoke.rules.round_documents import ReceivedFile
from bespoke_federated.adapter import Received
from bespoke_federated.database import BUSY_SECONDS, locked, prepared, transaction, unusable
from bespoke_federated.directions import Directions, Span
from bespoke_federated.guidance import Opening, kept_files
from bespoke_federated.led.documents import Collected
from bespoke_federated.rows import StepTexts
from bespoke_federated.whole_file import FILES

__all__ = ["CloudRound", "CloudStore", "EdgeShare", "rounds_ended"]

VERSION = 1
DATABASE, LOCK = "cloud.sqlite", "cloud.lock"

SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY,
    waits INTEGER NOT NULL,  -- 1: for guidance, and no edge has heard of it
    started REAL NOT NULL,  -- when its wait or its deadline began to run
    groups INTEGER NOT NULL,
    each INTEGER NOT NULL,
    coefficient REAL NOT NULL,  -- c and c' of what devices measure
    guidance_coefficient REAL NOT NULL,
    watched INTEGER NOT NULL,  -- groups at the end that measure z alone
    guidance TEXT,  -- its files as JSON; NULL: none
    public_inside REAL NOT NULL,  -- squares of other public gradients, within the span and in all
    public_whole REAL NOT NULL,
    coefficients TEXT,  -- once it has ended
    guided TEXT,  -- c' of the steps, where there is guidance
    half INTEGER,
    adapter TEXT
) STRICT;
CREATE TABLE shares (
    round INTEGER NOT NULL,
    edge TEXT NOT NULL,
    first_group INTEGER NOT NULL,
    groups INTEGER NOT NULL,
    first_watched INTEGER NOT NULL,
    watched INTEGER NOT NULL,
    devices INTEGER NOT NULL,
    collected TEXT,  -- Collected, once this edge has closed the round and the cloud knows what came
    UNIQUE (round, edge)
) STRICT;
CREATE TABLE edges (
    edge TEXT PRIMARY KEY,
    most_rounds INTEGER NOT NULL  -- of the device that sent numbers in most rounds
) STRICT;
"""


class CloudRound(NamedTuple):
    """A round. It has ended where it has an adapter."""

    number: int
    waits: bool
    started: float
    measured: Directions
    guidance: tuple[ReceivedFile, ...]  # empty: none
    public: Squares
    coefficients: str | None
    guided: str | None
    half: bool
    adapter: str | None

    @property
    def is_open(self) -> bool:
        return not self.waits and self.adapter is None

    @property
    def texts(self) -> StepTexts:
        """The step, once the round has ended."""
        assert self.coefficients is not None
        return StepTexts(self.coefficients, self.guided, self.half)


class EdgeShare(NamedTuple):
    """An edge's share in a round."""

    edge: str
    span: Span
    devices: int
    collected: Collected | None


_ROUND = (
    "number, waits, started, groups, each, coefficient, guidance_coefficient, watched, guidance, "
    "public_inside, public_whole, coefficients, guided, half, adapter"
)


_OPENED = _ROUND.removesuffix(", coefficients, guided, half, adapter")


class CloudStore:
    """The database of a cloud's state folder. One process at a time has it open."""

    def __init__(self, folder: Path, facts: dict[str, str]) -> None:
        """Opens the state or makes it. Raises StateError where it belongs to something else than these facts."""
        self.folder = folder
        self.shapes_of_guidance: Mapping[str, Received] = {}
        try:
            (folder / FILES).mkdir(parents=True, exist_ok=True)
            self._locked = locked(folder / LOCK, "a cloud")
            self._database = sqlite3.connect(folder / DATABASE, timeout=BUSY_SECONDS, isolation_level=None)
            self._prepare(facts)
        except (OSError, sqlite3.Error) as error:
            raise unusable(folder, type(error).__name__, "a folder with a cloud's state, or an empty one") from None

    def close(self) -> None:
        self._database.close()
        os.close(self._locked)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes all changes of its body or none."""
        with transaction(self._database):
            yield

    def round(self, number: int) -> CloudRound | None:
        rows = self._rounds("WHERE number = ?", number)
        return rows[0] if rows else None

    def last_round(self) -> CloudRound | None:
        rows = self._rounds("ORDER BY number DESC LIMIT 1")
        return rows[0] if rows else None

    def last_ended(self) -> int:
        """The number of the last round that has ended; 0: none."""
        return int(self._all("SELECT COALESCE(MAX(number), 0) FROM rounds WHERE adapter IS NOT NULL")[0][0])

    def round_after_which(self, adapter: str) -> CloudRound | None:
        """The last round after which the adapter had this hash."""
        rows = self._rounds("WHERE adapter = ? ORDER BY number DESC LIMIT 1", adapter)
        return rows[0] if rows else None

    def ended_after(self, number: int, most: int) -> list[CloudRound]:
        return self._rounds("WHERE number > ? AND adapter IS NOT NULL ORDER BY number LIMIT ?", number, most)

    def guided_rounds(self, most: int) -> list[CloudRound]:
        """The first rounds with guidance that have ended, in their order."""
        return self._rounds("WHERE guidance IS NOT NULL AND adapter IS NOT NULL ORDER BY number LIMIT ?", most)

    def wait_with_round(self, number: int, now: float) -> None:
        """Adds a round that waits for guidance."""
        self._add_round(number, True, Opening(Directions(0, 0)), now)

    def open_round(self, number: int, opening: Opening, shares: Sequence[EdgeShare], now: float) -> None:
        """Opens a new round, or one that has waited."""
        with self.transaction():
            self._add_round(number, False, opening, now)
            for share in shares:
                self._all("INSERT INTO shares VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", number, *_flat(share))

    def guidance_of(self, number: int) -> dict[str, np.ndarray]:
        """The guidance of a round by name. `shapes_of_guidance` says what it looks like."""
        row = self.round(number)
        return kept_files(self.folder, row.guidance if row else (), self.shapes_of_guidance)

    def end_round(self, number: int, step: StepTexts, adapter: str) -> None:
        sql = """UPDATE rounds SET coefficients = ?, guided = ?, half = ?, adapter = ?
                 WHERE number = ? AND adapter IS NULL"""
        self._all(sql, step.coefficients, step.guided, int(step.half), adapter, number)

    def shares(self, number: int) -> list[EdgeShare]:
        """By edge, in the order of their directions."""
        sql = """SELECT edge, first_group, groups, first_watched, watched, devices, collected FROM shares
                 WHERE round = ? ORDER BY rowid"""
        return [
            EdgeShare(row[0], Span(*row[1:5]), row[5], row[6] and Collected.model_validate_json(row[6]))
            for row in self._all(sql, number)
        ]

    def numbers(self, number: int) -> list[tuple[int, tuple[float, ...]]]:
        """(first direction, numbers) of each device that counts. None where edges have sent sums."""
        shares = self.shares(number)
        return [(one.first, one.numbers) for share in shares if share.collected for one in share.collected.numbers]

    def collect(self, edge: str, collected: Collected) -> None:
        """Keeps what came of an edge's share in a round that has not ended. What is there stays."""
        sql = """UPDATE shares SET collected = ? WHERE round = ? AND edge = ? AND collected IS NULL
                 AND EXISTS (SELECT 1 FROM rounds WHERE number = round AND adapter IS NULL)"""
        self._all(sql, collected.model_dump_json(), collected.round, edge)

    def counted(self, number: int, edge: str) -> bool:
        """Whether an edge's numbers were there when a round ended."""
        sql = "SELECT 1 FROM shares WHERE round = ? AND edge = ? AND collected IS NOT NULL"
        return bool(self._all(sql, number, edge))

    def note_edge(self, edge: str, most_rounds: int) -> None:
        self._all("INSERT OR REPLACE INTO edges VALUES (?, ?)", edge, most_rounds)

    def most_rounds(self) -> int:
        """Rounds of the device, of all edges, that sent numbers in most of them."""
        return int(self._all("SELECT COALESCE(MAX(most_rounds), 0) FROM edges")[0][0])

    def _rounds(self, rest: str, *values: Any) -> list[CloudRound]:
        rows = self._all(f"SELECT {_ROUND} FROM rounds {rest}", *values)
        return [
            CloudRound(
                row[0],
                bool(row[1]),
                row[2],
                Directions(*row[3:8]),
                tuple(ReceivedFile(**file) for file in json.loads(row[8] or "[]")),
                Squares(*row[9:11]),
                *row[11:13],
                bool(row[13]),
                row[14],
            )
            for row in rows
        ]

    def _add_round(self, number: int, waits: bool, opening: Opening, now: float) -> None:
        """Adds a round, in place of one that has waited."""
        files = json.dumps([file.model_dump() for file in opening.files]) if opening.files else None
        values = (number, int(waits), now, *opening.measured, files, *opening.public)
        self._all(f"INSERT OR REPLACE INTO rounds ({_OPENED}) VALUES ({', '.join('?' * len(values))})", *values)

    def _all(self, sql: str, *values: Any) -> list[Any]:
        return self._database.execute(sql, values).fetchall()

    def _prepare(self, facts: dict[str, str]) -> None:
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        with self.transaction():
            if prepared(self._database, self.folder, VERSION, SCHEMA):
                self._database.executemany("INSERT INTO about VALUES (?, ?)", list(facts.items()))
            if dict(self._all("SELECT key, value FROM about")) != facts:
                raise unusable(self.folder, "the state of another bundle", "that of the bundle that is led")


def rounds_ended(folder: Path) -> int:
    """How many rounds of a cloud's state have ended, while a cloud runs or not."""
    if not (folder / DATABASE).exists():
        return 0
    with closing(sqlite3.connect(f"file:{quote(str(folder / DATABASE))}?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT COUNT(*) FROM rounds WHERE adapter IS NOT NULL").fetchone()[0])


def _flat(share: EdgeShare) -> tuple[str | int, ...]:
    return (share.edge, *share.span, share.devices)
