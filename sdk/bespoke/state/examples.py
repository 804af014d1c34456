# SPDX-License-Identifier: Apache-2.0
"""The user's examples: stored tokenized, their split fixed when they are added."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np

from bespoke.errors import DataError, kind_of
from bespoke.state.database import Database, canonical_json, stored_json
from bespoke.state.errors import damaged
from bespoke.state.lock import now
from bespoke.state.records import AddedExample, ExampleInfo, ExampleRow, Split, TokenRows
from bespoke.state.schema import MAX_VALUE_BYTES

MAX_ID_CHARACTERS = 256
SPLIT_FROM = 5  # examples: with fewer all are trained on, and the training loss is judged
VALIDATION_ONE_IN = 10


def add(database: Database, example: dict[str, Any], rows: Sequence[TokenRows], id: str | None) -> AddedExample:
    """Store an example. DataError where the id is taken by other content, or example or rows are none."""
    text, id = identified(example, id)
    encoded = _encoded_rows(rows, id)
    with database.transaction() as connection:
        found = connection.execute("SELECT split, json FROM examples WHERE id = ?", (id,)).fetchone()
        if found is not None:
            if found[1] != text:
                raise DataError(
                    f"example '{id}'",
                    got="other content than the example stored under this id",
                    expected="the same content, or an id of its own",
                    next_step="Call forget(id) first to replace it, or add it under another id",
                )
            return AddedExample(id, found[0], created=False)
        data_version, count, validation = _counted(database, connection)
        split = split_of(id, count + 1, validation)
        tokens, trained = sum(entry[2] for entry in encoded), sum(entry[3] for entry in encoded)
        key = connection.execute(
            "INSERT INTO examples (id, split, json, tokens, trained_tokens, added_at) VALUES (?, ?, ?, ?, ?, ?)",
            (id, split, text, tokens, trained, now()),
        ).lastrowid
        _insert_rows(connection, key, encoded)
        database.example_counts = (data_version, count + 1, validation + (split == "validation"))
    return AddedExample(id, split, created=True)


def _counted(database: Database, connection: sqlite3.Connection) -> tuple[int, int, int]:
    """SQLite's data version, which changes when another connection commits; examples; how many of them are for validation.

    Counted again only if another process wrote meanwhile: otherwise each `add` would read all examples before it.
    """
    (data_version,) = connection.execute("PRAGMA data_version").fetchone()
    known, database.example_counts = database.example_counts, None
    if known is not None and known[0] == data_version:
        return known
    counts = "SELECT count(*), count(*) FILTER (WHERE split = 'validation') FROM examples"
    return (data_version, *connection.execute(counts).fetchone())


def identified(example: dict[str, Any], id: str | None) -> tuple[str, str]:
    """The example's canonical JSON and its id. DataError for what could not be stored under any rows."""
    text = _canonical(example)
    if id is None:
        id = hashlib.sha256(text.encode()).hexdigest()
    check_id(id)
    return text, id


def split_of(id: str, count: int, validation: int) -> Split:
    """Split of a new example, the `count`-th (from 1), where `validation` of those before it are for validation."""
    if count < SPLIT_FROM:
        return "train"
    chosen = int(hashlib.sha256(id.encode()).hexdigest(), 16) % VALIDATION_ONE_IN == 0
    return "validation" if chosen or validation * VALIDATION_ONE_IN < count else "train"


def infos(database: Database) -> list[ExampleInfo]:
    """All examples in the order in which they were added."""
    rows = database.read(
        "SELECT id, split, json, tokens, trained_tokens, added_at, "
        "(SELECT count(*) FROM example_rows WHERE example = key) FROM examples ORDER BY key"
    )
    return [
        ExampleInfo(id, split, stored_json(text, f"example '{id}'"), tokens, trained, count, added_at)
        for id, split, text, tokens, trained, added_at, count in rows
    ]


def ids(database: Database, split: Split | None) -> list[str]:
    rows = database.read("SELECT id FROM examples WHERE split = ? OR ? IS NULL ORDER BY key", (split, split))
    return [row[0] for row in rows]


def rows_of(database: Database, ids: Sequence[str]) -> list[ExampleRow]:
    """Token rows of the examples, in the order of `ids`, then of windows. DataError for an id that is not there."""
    found = []
    with database.snapshot():
        for id in ids:
            rows = database.read(
                "SELECT row, r.tokens, r.mask FROM example_rows r JOIN examples ON key = example "
                "WHERE id = ? ORDER BY row",
                (id,),
            )
            if not rows:
                if database.read("SELECT 1 FROM examples WHERE id = ?", (id,)):
                    raise damaged(f"example '{id}'", "no token rows", "those it was added with")
                raise unknown(id)
            found += [ExampleRow(id, row, *_decoded(tokens, mask, id)) for row, tokens, mask in rows]
    return found


def replace_rows(database: Database, id: str, rows: Sequence[TokenRows]) -> None:
    """Other tokens for a stored example, or, without rows, no such example any more."""
    with database.transaction() as connection:
        database.example_counts = None
        (key,) = connection.execute("SELECT key FROM examples WHERE id = ?", (id,)).fetchone()
        if not rows:
            connection.execute("DELETE FROM examples WHERE key = ?", (key,))
            return
        encoded = _encoded_rows(rows, id)
        connection.execute("DELETE FROM example_rows WHERE example = ?", (key,))
        _insert_rows(connection, key, encoded)
        sums = (sum(entry[2] for entry in encoded), sum(entry[3] for entry in encoded), key)
        connection.execute("UPDATE examples SET tokens = ?, trained_tokens = ? WHERE key = ?", sums)


def unknown(id: object) -> DataError:
    return DataError(
        f"example {str(id)[:100]!r}", got="no such example", expected="the id of a stored one", next_step="List them"
    )


def _insert_rows(connection: Any, key: int | None, encoded: Sequence[tuple[bytes, bytes, int, int]]) -> None:
    connection.executemany(
        "INSERT INTO example_rows (example, row, tokens, mask) VALUES (?, ?, ?, ?)",
        [(key, row, tokens, mask) for row, (tokens, mask, _, _) in enumerate(encoded)],
    )


def _canonical(example: dict[str, Any]) -> str:
    if not isinstance(example, dict):
        raise _bad("example", kind_of(example), "a JSON object", "Pass a dict")
    try:
        text = canonical_json(example)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad("example", _no_json(error), "what JSON can hold", "Use text, finite numbers, lists and objects") from error
    if size > MAX_VALUE_BYTES:
        raise _bad("example", f"{size} bytes of JSON", f"at most {MAX_VALUE_BYTES}", "Cut it into several examples")
    return text


def _no_json(error: Exception) -> str:
    """In our words: json's are of Python."""
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair"
    if isinstance(error, RecursionError):
        return "lists or objects nested too deeply"
    return "a number that is not finite" if isinstance(error, ValueError) else "something else than JSON's values"


def check_id(id: str) -> None:
    """DataError for an id that could not be stored."""
    problem = ""
    if not isinstance(id, str):
        problem = kind_of(id)
    elif not 1 <= len(id) <= MAX_ID_CHARACTERS or "\0" in id:
        problem = f"{len(id)} characters" + (", one of them NUL" if "\0" in id else "")
    else:
        try:
            id.encode()
        except UnicodeEncodeError:
            problem = "half of a surrogate pair"
    if problem:
        expected = f"text of 1 to {MAX_ID_CHARACTERS} characters"
        raise _bad("id of an example", problem, expected, "Use another id, or none")


def _encoded_rows(rows: Sequence[TokenRows], id: str) -> list[tuple[bytes, bytes, int, int]]:
    """Each row as (tokens, mask, number of tokens, number of trained tokens)."""
    encoded = []
    for row in rows:
        tokens, mask = np.asarray(row.tokens), np.asarray(row.mask)
        if tokens.dtype != np.int32 or mask.dtype != np.uint8 or tokens.ndim != 1 or tokens.shape != mask.shape:
            got = f"tokens {tokens.dtype} {list(tokens.shape)}, mask {mask.dtype} {list(mask.shape)}"
            raise _bad(f"example '{id}'", got, "int32 [n] and uint8 [n]", "Tokenize it with the bundle's encoder")
        if not 2 <= len(tokens) <= MAX_VALUE_BYTES // 4 or tokens.min() < 0 or mask.max() > 1 or mask[0]:
            expected = f"2 to {MAX_VALUE_BYTES // 4} tokens of at least 0; a mask of 0 and 1 that starts with 0"
            raise _bad(f"example '{id}'", "another row of tokens", expected, "Tokenize it with the bundle's encoder")
        encoded.append((tokens.astype("<i4").tobytes(), mask.tobytes(), len(tokens), int(mask.sum())))
    if not sum(entry[3] for entry in encoded):
        expected = "at least one token to train on"
        raise _bad(f"example '{id}'", "no token that is trained on", expected, "Look at train_on and at the roles")
    return encoded


def _decoded(tokens: bytes, mask: bytes, id: str) -> tuple[np.ndarray, np.ndarray]:
    if len(tokens) != 4 * len(mask) or not mask:
        raise damaged(f"example '{id}'", f"{len(tokens)} bytes of tokens, {len(mask)} of mask", "4 and 1 a token")
    return np.frombuffer(tokens, "<i4").astype(np.int32, copy=False), np.frombuffer(mask, np.uint8)


def _bad(subject: str, got: str, expected: str, next_step: str) -> DataError:
    return DataError(subject, got=got, expected=expected, next_step=next_step)
