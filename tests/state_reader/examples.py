# SPDX-License-Identifier: Apache-2.0
"""Examples: how they are stored, their rows of tokens, and the split that was fixed when each was added."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from dataclasses import dataclass
from itertools import groupby

from database import version_of
from findings import Findings

MAX_ID_CHARACTERS, MAX_VALUE_BYTES = 256, 16 * 2**20
SPLIT_FROM, ONE_IN = 5, 10


@dataclass(frozen=True)
class Limits:
    """What the bundle adds, where it is given: number of token ids, most tokens of a row."""

    vocabulary: int = 2**31
    row_tokens: int = MAX_VALUE_BYTES // 4


def check_examples(connection: sqlite3.Connection, limits: Limits, findings: Findings) -> None:
    use, rejected = ("use", "rejected_tokens, rejected_mask") if version_of(connection) > 1 else ("''", "NULL, NULL")
    columns = f"key, id, split, json, tokens, trained_tokens, {use}"
    examples = connection.execute(f"SELECT {columns} FROM examples ORDER BY key").fetchall()
    rows = connection.execute(
        f"SELECT example, row, tokens, mask, {rejected} FROM example_rows ORDER BY example, row"
    ).fetchall()
    by_example = {key: list(found) for key, found in groupby(rows, key=lambda row: row[0])}
    for key, id, _, text, tokens, trained, _ in examples:
        where = f"example {id[:60]!r}"
        findings.check(
            1 <= len(id) <= MAX_ID_CHARACTERS and "\0" not in id, "examples", where, f"an id of {len(id)} characters"
        )
        value = findings.json_object(text, "examples", where)
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        findings.check(
            text == canonical and len(text.encode()) <= MAX_VALUE_BYTES, "examples", where, "JSON in another spelling"
        )
        found = by_example.get(key, [])
        findings.check(
            [row[1] for row in found] == list(range(len(found))) and found, "rows", where, "rows with gaps, or none"
        )
        counts = [_check_row(blob, mask, limits, where, findings) for _, _, blob, mask, *_ in found]
        for *_, blob, mask in found:
            if (
                findings.check((blob is None) == (mask is None), "rows", where, "half of a rejected row")
                and blob is not None
            ):
                _check_row(blob, mask, limits, f"{where}, rejected", findings)
        sums = [sum(one) for one in zip(*counts, strict=True)] if counts else [0, 0]
        agree = sums == [tokens, trained] and trained > 0
        findings.check(agree, "rows", where, f"{sums} tokens, trained ones; noted are {tokens, trained}")
    _check_split([(key, id, split, use) for key, id, split, *_, use in examples], findings)


def _check_row(blob: bytes, mask: bytes, limits: Limits, where: str, findings: Findings) -> tuple[int, int]:
    if not findings.check(
        len(blob) == 4 * len(mask) > 0, "rows", where, f"{len(blob)} bytes of tokens, {len(mask)} of mask"
    ):
        return 0, 0
    tokens = struct.unpack(f"<{len(mask)}i", blob)
    findings.check(2 <= len(mask) <= limits.row_tokens, "rows", where, f"a row of {len(mask)} tokens")
    findings.check(
        all(0 <= token < limits.vocabulary for token in tokens), "rows", where, f"tokens {min(tokens)} to {max(tokens)}"
    )
    findings.check(set(mask) <= {0, 1} and mask[0] == 0, "rows", where, f"a mask of {set(mask)}")
    return len(tokens), sum(mask)


def _check_split(examples: list[tuple[int, str, str, str]], findings: Findings) -> None:
    """The rule needs the counts of the moment. Examples forgotten since then left gaps in the numbers: each may have been there or
    not, in either split. A split is wrong if none of these makes it right. What is for training only is never held out.
    """
    validation = last = gaps = 0
    for before, (key, id, split, use) in enumerate(examples):
        gaps += key - last - 1
        last = key
        chosen = int(hashlib.sha256(id.encode()).hexdigest(), 16) % ONE_IN == 0
        least, most = before + 1, before + 1 + gaps
        short_of = validation * ONE_IN < most  # none of them was for validation
        enough = (validation + gaps) * ONE_IN >= most  # all of them were
        may_be = {
            "validation": not use and most >= SPLIT_FROM and (chosen or short_of),
            "train": use == "train" or least < SPLIT_FROM or (not chosen and enough),
        }
        findings.check(
            split in may_be and may_be[split], "split", f"example {id[:60]!r}", f"{split}, as number {least} to {most}"
        )
        validation += split == "validation"
