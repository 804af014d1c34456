# SPDX-License-Identifier: Apache-2.0
"""The state of a led edge: that of any server, and what its cloud has said of each round."""

from __future__ import annotations

import secrets

from bespoke_federated.directions import Span
from bespoke_federated.guidance import Opening
from bespoke_federated.led.documents import Ended
from bespoke_federated.store import Store

__all__ = ["LedStore"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS led (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS shares (  -- of this edge in rounds that it has opened
    round INTEGER PRIMARY KEY,
    first_group INTEGER NOT NULL,
    groups INTEGER NOT NULL,
    first_watched INTEGER NOT NULL,
    watched INTEGER NOT NULL,
    devices INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS expected (  -- sha256 of the adapter after rounds, as the cloud has it
    round INTEGER PRIMARY KEY,
    adapter TEXT NOT NULL
) STRICT;
"""


class LedStore(Store):
    """A store whose rounds a cloud opens and ends. `edge`: its name, drawn once."""

    edge: str

    def belongs_to(self, facts: dict[str, str]) -> None:
        """Notes that the state is led as well: a server that decides for itself cannot go on with it."""
        super().belongs_to({**facts, "led": "yes"})
        with self.transaction():
            self._run("INSERT OR IGNORE INTO led VALUES ('edge', ?)", secrets.token_hex(32))
        self.edge = self._one("SELECT value FROM led WHERE key = 'edge'")[0]

    def rounds_of_task(self) -> int | None:
        row = self._one("SELECT value FROM led WHERE key = 'rounds'")
        return row and int(row[0])

    def set_rounds_of_task(self, rounds: int) -> None:
        self._run("INSERT OR REPLACE INTO led VALUES ('rounds', ?)", str(rounds))

    def share(self, round_number: int) -> tuple[Span, int] | None:
        """This edge's groups and devices in a round that was opened here."""
        sql = "SELECT first_group, groups, first_watched, watched, devices FROM shares WHERE round = ?"
        row = self._one(sql, round_number)
        return row and (Span(*row[:4]), row[4])

    def add_led(self, number: int, opening: Opening, now: float) -> None:
        """Adds a round as the cloud has opened it."""
        self.add_round(number, "waiting", opening.measured, now)
        self.open_waiting(number, opening, now)

    def add_share(self, number: int, span: Span, devices: int) -> None:
        self._run("INSERT INTO shares VALUES (?, ?, ?, ?, ?, ?)", number, *span, devices)

    def close_round(self, number: int) -> None:
        """From now on the numbers of this round are late. Its coefficients are still to come."""
        self._run("UPDATE rounds SET state = 'combined' WHERE number = ? AND state = 'open'", number)

    def fix_round(self, ended: Ended) -> None:
        """Notes the coefficients that the cloud has combined. Numbers that are not in them count as late."""
        sql = """UPDATE rounds SET state = 'combined', coefficients = ?, guided = ?, half = ?
                 WHERE number = ? AND state <> 'ended' AND coefficients IS NULL"""
        self._run(sql, ended.coefficients, ended.guided, int(ended.half), ended.number)
        self._run("INSERT OR IGNORE INTO expected VALUES (?, ?)", ended.number, ended.adapter)
        if not ended.counted:
            self._run("UPDATE numbers SET late = 1 WHERE round = ?", ended.number)

    def expected_after(self, number: int) -> str | None:
        row = self._one("SELECT adapter FROM expected WHERE round = ?", number)
        return row and str(row[0])

    def _prepare(self) -> None:
        super()._prepare()
        with self.transaction():
            for statement in SCHEMA.split(";\n"):
                self._run(statement)
