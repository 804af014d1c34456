# SPDX-License-Identifier: Apache-2.0
"""What a state says, without what differs between two states that say the same: times, random names, numbers of rows.

One digest a table, and one of all: so that two states can be compared, as a whole or table by table. What a later version added
has digests of its own, so that a state that was brought to it keeps those that it had.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from database import version_of
from findings import digest

_QUERIES = {
    "state": "SELECT base_sha256, adapter FROM state",
    "examples": "SELECT id, split, json, tokens, trained_tokens FROM examples ORDER BY key",
    "example_rows": "SELECT id, row, hex(r.tokens), hex(mask) FROM example_rows r JOIN examples ON key = example ORDER BY key, row",
    "runs": (
        "SELECT id, method, seed, settings, steps, started_from, parent, step, cursor, ended_because FROM runs ORDER BY id"
    ),
    "run_examples": "SELECT run, examples.id FROM run_examples JOIN examples ON key = example ORDER BY run, position",
    "slots": "SELECT run, step, cursor, sha256 FROM slots ORDER BY run, id",
    "journal": "SELECT run, step, cursor, hex(recorded), rejected, metrics FROM journal ORDER BY run, step",
    "metrics": "SELECT run, json FROM metrics ORDER BY run, id",
    "versions": "SELECT id, run, step, metrics, source, sha256 FROM versions ORDER BY id",
}
_QUERIES_SINCE_2 = {
    "text": "SELECT text FROM state",
    "use": "SELECT id, use FROM examples ORDER BY key",
    "rejected": (
        "SELECT id, row, hex(rejected_tokens), hex(rejected_mask) FROM example_rows JOIN examples ON key = example "
        "ORDER BY key, row"
    ),
    "losses": "SELECT version, rows, loss FROM losses ORDER BY version, rows",
}
_QUERIES_SINCE_3 = {
    "judgements": "SELECT run, step, loss FROM judgements ORDER BY run, step",
    "best_steps": "SELECT run, step, sha256 FROM best_steps ORDER BY run",
}
_QUERIES_SINCE_5 = {"answers": "SELECT run, step, prompt, hex(tokens) FROM answers ORDER BY run, step, prompt"}
_QUERIES_SINCE_6 = {
    "federations": "SELECT task, joined_at IS NULL, spent, round, differs, adapter, sha256, document, done FROM federations",
    "rounds": "SELECT task, round FROM rounds ORDER BY task, round",
    "outbox": "SELECT task, round, numbers FROM outbox ORDER BY task, round",
    "round_examples": "SELECT task, round, id FROM round_examples JOIN examples ON key = example ORDER BY task, round, key",
}
_MEASURED = ("losses", *_QUERIES_SINCE_3, *_QUERIES_SINCE_5)


def summary(connection: sqlite3.Connection) -> dict[str, Any]:
    """Counts, where the newest run stands, and digests."""
    version = version_of(connection)
    queries = _QUERIES | (_QUERIES_SINCE_2 if version > 1 else {}) | (_QUERIES_SINCE_3 if version > 2 else {})
    queries |= (_QUERIES_SINCE_5 if version > 4 else {}) | (_QUERIES_SINCE_6 if version > 5 else {})
    digests = {what: digest(connection.execute(query).fetchall()) for what, query in queries.items()}

    def count(table: str, where: str = "1") -> int:
        return int(connection.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()[0])

    newest = connection.execute(
        "SELECT id, method, step, cursor, ended_because FROM runs ORDER BY id DESC LIMIT 1"
    ).fetchone()
    return {
        "examples": count("examples"),
        "validation": count("examples", "split = 'validation'"),
        "runs": count("runs"),
        "unfinished": count("runs", "ended_because IS NULL"),
        "slots": count("slots"),
        "journal": count("journal"),
        "versions": count("versions"),
        "newest_run": newest and dict(zip(("id", "method", "step", "cursor", "ended_because"), newest, strict=True)),
        "digests": digests,
        # What has been measured so far follows from the rest: two states that differ in it say the same.
        "digest": digest({table: one for table, one in digests.items() if table not in _MEASURED}),
    }
