# SPDX-License-Identifier: Apache-2.0
"""The data cursor, on rows cut from a real text; the order is held against the rule written out in plain integers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.errors import ConfigError, DataError
from bespoke.rules.batches import BatchCursor, CursorState, Row, TokenBatch, check_rows, evaluation_batches
from tests.unit.rules.numbers import integers

LENGTHS = (16, 32, 64)
TEXT = Path(__file__).read_bytes()


def rows(count: int, first: int = 0) -> list[Row]:
    """Bytes of this file as tokens: rows of 2 to 65 tokens, the first third of each masked."""
    made = []
    for number in range(first, first + count):
        size = 2 + number * 37 % 64
        tokens = np.frombuffer(TEXT[number * 20 : number * 20 + size], np.uint8).astype(np.int32)
        mask = np.ones(size, np.uint8)
        mask[: max(1, size // 3)] = 0
        made.append(Row(tokens, mask))
    return made


def cursor(user: int = 20, general: int = 30, **changes: Any) -> BatchCursor:
    settings: dict[str, Any] = {
        "seed": 7,
        "batch_size": 4,
        "accumulation": 3,
        "sequence_lengths": LENGTHS,
        "general_share": 0.25,
    }
    return BatchCursor(rows(user), rows(general, 100), **(settings | changes))


def run(
    cursor: BatchCursor, steps: int, state: CursorState | None = None
) -> tuple[list[list[TokenBatch]], CursorState]:
    state = state or CursorState()
    out = []
    for _ in range(steps):
        batches, state = cursor.step(state)
        out.append(batches)
    return out, state


def same(a: TokenBatch, b: TokenBatch) -> bool:
    arrays = all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("tokens", "targets", "mask"))
    return arrays and (a.source, a.rows, a.tokens_trained) == (b.source, b.rows, b.tokens_trained)


def test_a_resumed_cursor_gives_the_batches_of_an_undisturbed_one() -> None:
    whole, end = run(cursor(), 40)
    _, middle = run(cursor(), 17)
    restored = CursorState.model_validate_json(json.dumps(middle.model_dump()))
    rest, rest_end = run(cursor(), 23, restored)
    assert rest_end == end
    assert all(same(a, b) for x, y in zip(whole[17:], rest, strict=True) for a, b in zip(x, y, strict=True))


def test_the_rule_of_order_and_source_is_the_documented_one() -> None:
    seed, n, batch_size, accumulation, share = (3 << 32) + 5, 11, 4, 3, 0.4
    key = [seed % 2**32, seed >> 32]
    made = cursor(n, n, seed=seed, batch_size=batch_size, accumulation=accumulation, general_share=share)
    steps, _ = run(made, 12)
    position = {"user": 0, "general": 0}
    for step, batches in enumerate(steps):
        for micro, batch in enumerate(batches):
            word = integers([micro, 0, 0x80000000, step], key)[0]
            source = "general" if word < int(share * 2**32) else "user"
            stream = 0x80000001 if source == "user" else 0x80000002
            expected = []
            for place in range(position[source], position[source] + batch_size):
                epoch = place // n
                order = sorted(range(n), key=lambda r: (*integers([r, 0, stream, epoch], key)[:2], r))
                expected.append(order[place % n])
            position[source] += batch_size
            assert (batch.source, batch.rows) == (source, tuple(expected))


def test_an_epoch_takes_each_row_once_and_the_next_has_another_order() -> None:
    steps, _ = run(cursor(20, 0, accumulation=1), 10)
    seen = [number for batches in steps for batch in batches for number in batch.rows]
    assert sorted(seen[:20]) == list(range(20))
    assert sorted(seen[20:]) == list(range(20))
    assert seen[:20] != seen[20:]


def test_seeds_give_different_orders() -> None:
    firsts = {run(cursor(seed=seed), 1)[0][0][0].rows for seed in range(5)}
    assert len(firsts) == 5


def test_a_batch_holds_inputs_shifted_targets_and_mask() -> None:
    source = rows(20)
    (batches,), _ = run(cursor(20, 0), 1)
    for batch in batches:
        assert batch.tokens.dtype == batch.targets.dtype == np.int64
        assert batch.mask.dtype == np.float32
        assert batch.tokens.shape == (4, batch.sequence_length)
        for place, number in enumerate(batch.rows):
            row = source[number]
            size = len(row.tokens) - 1
            assert batch.tokens[place, :size].tolist() == row.tokens[:-1].tolist()
            assert batch.targets[place, :size].tolist() == row.tokens[1:].tolist()
            assert batch.mask[place, :size].tolist() == row.mask[1:].tolist()
            assert not batch.tokens[place, size:].any()
            assert not batch.mask[place, size:].any()
        assert batch.tokens_trained == sum(int(source[n].mask[1:].sum()) for n in batch.rows)


def test_the_length_is_the_smallest_that_holds_the_longest_row() -> None:
    for positions, expected in ((1, 16), (16, 16), (17, 32), (33, 64), (64, 64)):
        row = Row(np.ones(positions + 1, np.int32), np.ones(positions + 1, np.uint8))
        short = Row(np.ones(2, np.int32), np.ones(2, np.uint8))
        made = BatchCursor(
            [row, short], [], seed=0, batch_size=2, accumulation=1, sequence_lengths=(64, 16, 32), general_share=0
        )
        (batch,), _ = made.step(CursorState())
        assert batch.sequence_length == expected


def test_without_examples_of_the_user_every_batch_is_general() -> None:
    steps, state = run(cursor(0, 30, general_share=0.0), 5)
    assert {batch.source for batches in steps for batch in batches} == {"general"}
    assert (state.user_position, state.general_position) == (0, 60)


def test_without_general_rows_every_batch_is_the_users() -> None:
    steps, _ = run(cursor(20, 0, general_share=1.0), 5)
    assert {batch.source for batches in steps for batch in batches} == {"user"}


def test_the_general_share_is_met() -> None:
    steps, _ = run(cursor(general_share=0.2, batch_size=1, accumulation=10), 400)
    share = Counter(batch.source for batches in steps for batch in batches)["general"] / 4000
    assert abs(share - 0.2) < 5 * (0.2 * 0.8 / 4000) ** 0.5
    assert {b.source for bs in run(cursor(general_share=1.0), 20)[0] for b in bs} == {"general"}
    assert {b.source for bs in run(cursor(general_share=0.0), 20)[0] for b in bs} == {"user"}


def test_fewer_rows_than_the_batch_are_filled_with_masked_rows_not_repeats() -> None:
    steps, state = run(cursor(3, 0, batch_size=8, accumulation=2), 2)
    for batches in steps:
        for batch in batches:
            assert sorted(batch.rows) == [0, 1, 2]
            assert batch.mask.shape[0] == 8
            assert batch.mask[:3].any(axis=1).all()
            assert not batch.mask[3:].any()
    assert state.user_position == 12


def test_evaluation_covers_each_row_once_in_stable_buckets() -> None:
    source = rows(50)
    batches = list(evaluation_batches(source, 4, LENGTHS))
    numbers = [number for batch in batches for number in batch.rows]
    assert sorted(numbers) == list(range(50))
    needed = [next(t for t in LENGTHS if len(row.tokens) - 1 <= t) for row in source]
    assert numbers == sorted(range(50), key=lambda n: needed[n])
    assert all(batch.sequence_length == needed[n] for batch in batches for n in batch.rows)
    assert sum(batch.tokens_trained for batch in batches) == sum(int(row.mask[1:].sum()) for row in source)
    assert {batch.tokens.shape[0] for batch in batches} == {4}


def test_evaluation_of_nothing_is_nothing() -> None:
    assert list(evaluation_batches([], 4, LENGTHS)) == []


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (Row(np.ones(66, np.int32), np.ones(66, np.uint8)), "at most 65"),
        (Row(np.ones(1, np.int32), np.ones(1, np.uint8)), "2 or more"),
        (Row(np.ones(9, np.int32), np.eye(1, 9, dtype=np.uint8)[0]), "unmasked"),
        (Row(np.ones(9, np.int32), np.ones(8, np.uint8)), "mask"),
    ],
    ids=["too long", "one token", "all masked", "mask of another length"],
)
def test_a_row_no_batch_can_take_is_named(row: Row, says: str) -> None:
    data = [*rows(2), row]
    made = BatchCursor(data, [], seed=0, batch_size=3, accumulation=1, sequence_lengths=LENGTHS, general_share=0.2)
    for attempt in (
        lambda: made.step(CursorState()),
        lambda: check_rows(data, LENGTHS),
        lambda: list(evaluation_batches(data, 4, LENGTHS)),
    ):
        with pytest.raises(DataError, match=says) as caught:
            attempt()
        assert "row 2 of the user data" in caught.value.subject


def test_no_rows_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match="Add an example"):
        cursor(0, 0)


@pytest.mark.parametrize(
    "wrong",
    [{"batch_size": 0}, {"accumulation": 0}, {"general_share": 1.5}, {"seed": -1}, {"sequence_lengths": ()}],
    ids=str,
)
def test_settings_that_make_no_batch_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        cursor(**wrong)
    assert next(iter(wrong)) in caught.value.subject
