# SPDX-License-Identifier: Apache-2.0
"""The state of a led edge: that of any server, and what its cloud has said of each round."""

from __future__ import annotations

import secrets

from bespoke_federated.directions import Directions
from bespoke_federated.led.documents import Ended, Opened
from bespoke_federated.store import Store

__all__ = ["LedStore"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS led (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS shares (  -- of this edge in rounds that it has opened
    round INTEGER PRIMARY KEY,
    first_group INTEGER NOT NULL,
    groups INTEGER NOT NULL,
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

    def share(self, round_number: int) -> tuple[int, int, int] | None:
        """(first group, groups, devices) of a round that was opened here."""
        row = self._one("SELECT first_group, groups, devices FROM shares WHERE round = ?", round_number)
        return row and (row[0], row[1], row[2])

    def open_led(self, opened: Opened, now: float) -> None:
        self.add_round(opened.number, "open", Directions(opened.groups, opened.each), now)
        share = (opened.number, opened.first_group, opened.own_groups, opened.devices)
        self._run("INSERT INTO shares VALUES (?, ?, ?, ?)", *share)

    def close_round(self, number: int) -> None:
        """From now on the numbers of this round are late. Its coefficients are still to come."""
        self._run("UPDATE rounds SET state = 'combined' WHERE number = ? AND state = 'open'", number)

    def fix_round(self, ended: Ended) -> None:
        """Notes the coefficients that the cloud has combined. Numbers that are not in them count as late."""
        sql = """UPDATE rounds SET state = 'combined', coefficients = ?, half = ?
                 WHERE number = ? AND state <> 'ended' AND coefficients IS NULL"""
        self._run(sql, ended.coefficients, int(ended.half), ended.number)
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
