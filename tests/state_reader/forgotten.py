# SPDX-License-Identifier: Apache-2.0
"""Whether bytes of what was forgotten are still in a file of the folder: words, and token ids as the database keeps them.

A page of the database may hold a part only, so a text is looked for in pieces of 16 bytes (any run of 31 bytes of it holds one),
and tokens in every run of 8. What an example that is still there says too proves nothing and is left out.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from pathlib import Path

from database import version_of
from findings import Findings

PIECE_BYTES = 16
RUN_TOKENS = 8


def check_forgotten(
    connection: sqlite3.Connection | None, folder: Path, forgotten: list[str], findings: Findings
) -> None:
    """Each of `forgotten` is a text, or a JSON list of token ids."""
    kept = b"" if connection is None else _kept(connection)
    pieces = {piece: what for what in forgotten for piece in _pieces(what) if piece not in kept}
    for name in sorted(os.listdir(folder)):
        if not (folder / name).is_file():
            continue
        data = (folder / name).read_bytes() + b"\0" + os.fsencode(name)
        for piece, what in pieces.items():
            at = data.find(piece)
            if at >= 0:
                findings.check(False, "forgotten", f"{name}, byte {at}", f"{piece!r} of {what[:60]!r}")
                break


def _kept(connection: sqlite3.Connection) -> bytes:
    """All that is not forgotten, as the files hold it."""
    texts = connection.execute("SELECT id || char(10) || json FROM examples UNION ALL SELECT settings FROM runs")
    blobs = connection.execute("SELECT tokens FROM example_rows").fetchall()
    if version_of(connection) > 1:
        blobs += connection.execute(
            "SELECT rejected_tokens FROM example_rows WHERE rejected_tokens IS NOT NULL"
        ).fetchall()
    return b"\0".join([*(text.encode() for (text,) in texts), *(blob for (blob,) in blobs)])


def _pieces(forgotten: str) -> set[bytes]:
    tokens = _tokens(forgotten)
    if tokens is not None:
        runs = [tokens[at : at + RUN_TOKENS] for at in range(max(1, len(tokens) - RUN_TOKENS + 1))]
        return {struct.pack(f"<{len(run)}i", *run) for run in runs} | _text_pieces(",".join(map(str, tokens)))
    spelled = {json.dumps(forgotten, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)}
    return {piece for text in (forgotten, *spelled) for piece in _text_pieces(text)}


def _text_pieces(text: str) -> set[bytes]:
    data = text.encode("utf-8", "surrogatepass")
    whole = [data[at : at + PIECE_BYTES] for at in range(0, max(1, len(data) - PIECE_BYTES + 1), PIECE_BYTES)]
    return {piece for piece in whole if piece}


def _tokens(text: str) -> list[int] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    plain = isinstance(value, list) and value and all(type(one) is int and 0 <= one < 2**31 for one in value)
    return value if plain else None
