# SPDX-License-Identifier: Apache-2.0
"""Writes batches.json, which every language's data cursor, evaluation order and schedule must reproduce:
`python -m tests.conformance.make_batches`.

The rules are in bespoke.rules.batches and bespoke.rules.schedule, whose own tests hold them against plain integers and against
transformers; this file makes their answers known to languages that have no Python.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.config import Training
from bespoke.rules.batches import BatchCursor, CursorState, Row, TokenBatch, evaluation_batches
from bespoke.rules.judged import judged_rows
from bespoke.rules.run_length import run_length
from bespoke.rules.schedule import learning_rate_at

PATH = Path(__file__).with_name("batches.json")
LENGTHS = [4, 8, 16]
VOCAB_SIZE = 97

CURSORS: list[dict[str, Any]] = [
    {"comment": "user rows only", "user": 5, "general": 0, "steps": 8},
    {"comment": "general rows only", "user": 0, "general": 5, "steps": 8},
    {
        "comment": "both, several micro-batches",
        "user": 5,
        "general": 7,
        "accumulation": 3,
        "general_share": 0.3,
        "steps": 12,
    },
    {
        "comment": "wider than its source: padding rows",
        "user": 3,
        "general": 2,
        "batch_size": 4,
        "general_share": 0.5,
        "steps": 6,
    },
    {"comment": "batches that cross into the next epoch", "user": 7, "general": 0, "batch_size": 3, "steps": 9},
    {"comment": "share 1: never a user's row", "user": 4, "general": 3, "general_share": 1.0, "steps": 4},
    {
        "comment": "seed above 2^32",
        "user": 9,
        "general": 9,
        "seed": 2**63 - 1,
        "general_share": 0.5,
        "batch_size": 2,
        "steps": 10,
    },
    {
        "comment": "pairs of answers, two rows each, with rows that are alone",
        "user": 9,
        "general": 3,
        "general_share": 0.2,
        "batch_size": 4,
        "accumulation": 2,
        "pairs": True,
        "steps": 8,
    },
    {"comment": "pairs where the method learns none", "user": 9, "general": 0, "batch_size": 3, "steps": 3},
    {"comment": "an odd number of rows", "user": 7, "general": 0, "batch_size": 3, "pairs": True, "steps": 8},
    {
        "comment": "resumed late",
        "user": 11,
        "general": 6,
        "general_share": 0.2,
        "steps": 3,
        "from": {"step": 4000000000, "user_position": 123456789, "general_position": 987},
    },
]
EVALUATIONS = [{"rows": 11, "batch_size": 1}, {"rows": 11, "batch_size": 4}, {"rows": 0, "batch_size": 2}]
JUDGED: list[dict[str, Any]] = [  # lengths of rows: `pattern` over and over
    {"comment": "none", "rows": 0, "pattern": [2]},
    {"comment": "as many as are judged", "rows": 64, "pattern": [65]},
    {"comment": "one more", "rows": 65, "pattern": [65]},
    {"comment": "a book, in windows", "rows": 12345, "pattern": [65]},
    {"comment": "long and short by turns", "rows": 1000, "pattern": [120, 7]},
    {"comment": "each longer than all that is judged", "rows": 9, "pattern": [5000]},
]
SCHEDULES: list[dict[str, Any]] = [
    {"schedule": schedule, "warmup_steps": warmup, "total_steps": total}
    for schedule in ("constant", "linear", "cosine")
    for warmup, total in ((0, 10), (3, 10), (10, 10), (12, 10), (0, 1))
]
LENGTHS_OF_RUNS: list[dict[str, Any]] = [
    {
        "steps": steps,
        "batch_size": batch,
        "accumulation": accumulation,
        "general_share": share,
        "user": user,
        "general": general,
    }
    for steps, batch, accumulation, share, user, general in (
        (7, 1, 1, 0.3, 50, 200),
        (None, 1, 1, 0.3, 0, 200),
        (None, 1, 1, 0.3, 35, 200),
        (None, 1, 1, 0.3, 36, 200),
        (None, 1, 1, 0.3, 50, 0),
        (None, 1, 1, 0.3, 123, 200),
        (None, 4, 2, 0.3, 1234, 1),
        (None, 1, 1, 1.0, 123, 200),
        (None, 1, 1, 1.0, 123, 0),
        (None, 1, 1, 0.2, 10**6, 200),
    )
]


def row(number: int) -> Row:
    """Row `number` of either source: 2 to 17 tokens, a mask with gaps that always trains its last token.

    Every second one of the user's is the chosen answer of a pair, whose rejected one is row `number` + 50.
    """
    size = 2 + number * 7 % 16
    places = np.arange(size)
    tokens = ((number * 31 + places * 11 + 5) % VOCAB_SIZE).astype(np.int32)
    mask = ((places + number) % 3 != 0).astype(np.uint8)
    mask[0], mask[-1] = 0, 1
    return Row(tokens, mask, row(number + 50) if number < 50 and number % 2 else None)


def rows(count: int, first: int) -> list[Row]:
    return [row(first + number) for number in range(count)]


def as_json(batch: TokenBatch) -> dict[str, Any]:
    """A batch as the vectors have it: its fields, and its arrays as flat lists."""
    return {
        "source": batch.source,
        "rows": list(batch.rows),
        "sequence_length": batch.sequence_length,
        "tokens_trained": batch.tokens_trained,
        "tokens": batch.tokens.reshape(-1).tolist(),
        "targets": batch.targets.reshape(-1).tolist(),
        "mask": batch.mask.astype(int).reshape(-1).tolist(),
        "arrays": {name: array.astype(int).reshape(-1).tolist() for name, array in batch.arrays.items()},
    }


def cursor_case(given: dict[str, Any]) -> dict[str, Any]:
    case = {
        "seed": 7,
        "batch_size": 1,
        "accumulation": 1,
        "general_share": 0.0,
        "pairs": False,
        "from": CursorState().model_dump(),
        **given,
    }
    cursor = BatchCursor(
        rows(case["user"], 0),
        rows(case["general"], 100),
        seed=case["seed"],
        batch_size=case["batch_size"],
        accumulation=case["accumulation"],
        sequence_lengths=LENGTHS,
        general_share=case["general_share"],
        pairs=case["pairs"],
    )
    state, steps = CursorState.model_validate(case["from"]), []
    for _ in range(case.pop("steps")):
        batches, state = cursor.step(state)
        steps.append([as_json(batch) for batch in batches])
    return {**case, "expected": steps, "ends_at": state.model_dump()}


def _row_json(given: Row) -> dict[str, Any]:
    """Tokens and mask; of a pair also those of the rejected answer."""
    found = {"tokens": given.tokens.tolist(), "mask": given.mask.tolist()}
    return found if given.rejected is None else {**found, "rejected": _row_json(given.rejected)}


def document() -> dict[str, Any]:
    return {
        "format": 1,
        "what": "micro-batches of the data cursor, order of evaluation, rows that are judged, lengths of runs, learning rates",
        "generator": "make_batches.py",
        "sequence_lengths": LENGTHS,
        "vocab_size": VOCAB_SIZE,
        "first_row": {"user": 0, "general": 100},
        "rows": {str(number): _row_json(row(number)) for number in [*range(11), *range(100, 109)]},
        "cursors": [cursor_case(case) for case in CURSORS],
        "evaluations": [
            {
                **case,
                "expected": [
                    as_json(b) for b in evaluation_batches(rows(case["rows"], 0), case["batch_size"], LENGTHS)
                ],
            }
            for case in EVALUATIONS
        ],
        "judged": [
            {**case, "expected": judged_rows([case["pattern"][n % len(case["pattern"])] for n in range(case["rows"])])}
            for case in JUDGED
        ],
        "run_lengths": [
            {
                **case,
                "expected": run_length(
                    Training(**{name: case[name] for name in ("steps", "batch_size", "accumulation", "general_share")}),
                    case["user"],
                    case["general"],
                ),
            }
            for case in LENGTHS_OF_RUNS
        ],
        "schedule_tolerance": "1e-15 of the rate: cos of two libraries may differ by an ulp",
        "schedules": [
            {**case, "peak": 0.0003, "rates": [learning_rate_at(step, peak=0.0003, **case) for step in range(1, 13)]}
            for case in SCHEDULES
        ],
    }


def text() -> str:
    """One line for each case: a diff shows which of them changed."""
    whole = document()
    lines = []
    for name, value in whole.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            entries = ",\n".join("  " + json.dumps(entry) for entry in value)
            lines.append(f" {json.dumps(name)}: [\n{entries}\n ]")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="ascii")
