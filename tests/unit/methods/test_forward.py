# SPDX-License-Identifier: Apache-2.0
"""Tiles cover a batch once, and see every key that their queries may."""

from __future__ import annotations

import pytest

from bespoke.config import Training
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.trace import Tracer
from bespoke.methods.forward import query_tiles, row_tiles
from bespoke.model.spec import UNLIMITED, ModelSpec


def builder(llama: ModelSpec, length: int, rows: int, choices: dict[str, int]) -> PlanBuilder:
    return PlanBuilder(llama, Training(batch_size=rows), length, 2 * length, Tracer(), choices)


@pytest.mark.parametrize("window", [UNLIMITED, 1, 8, 40, 200])
@pytest.mark.parametrize(
    ("length", "size"), [(1, 1), (63, 63), (64, 64), (129, 64), (257, 128), (300, 256), (1000, 1000)]
)
def test_a_tile_sees_every_key_that_its_queries_may(length: int, size: int, window: int, llama: ModelSpec) -> None:
    tiles = query_tiles(builder(llama, length, 3, {"query_tile": size}), length, 3, window)
    rows = [row for tile in tiles for row in range(*tile.rows)]
    assert rows == list(range(3 * length))  # each once, in order
    for tile in tiles:
        first, last = tile.rows[0], tile.rows[1] - 1
        begin = first // length * length
        assert begin == last // length * length  # both in one sequence
        assert begin <= tile.keys[0] <= max(begin, first - window + 1)
        assert last < tile.keys[1] <= begin + length
        assert tile.keys[0] + tile.start == first
    assert len({(tile.rows[1] - tile.rows[0], tile.keys[1] - tile.keys[0]) for tile in tiles}) <= 5  # few graphs


def test_keys_that_no_query_sees_are_left_out(llama: ModelSpec) -> None:
    tiles = query_tiles(builder(llama, 1024, 1, {"query_tile": 64}), 1024, 1, UNLIMITED)
    seen = sum((t.rows[1] - t.rows[0]) * (t.keys[1] - t.keys[0]) for t in tiles)
    assert seen == 1024 * 1024 * 5 // 8
    narrow = query_tiles(builder(llama, 1024, 1, {"query_tile": 64}), 1024, 1, 128)
    assert sum((t.rows[1] - t.rows[0]) * (t.keys[1] - t.keys[0]) for t in narrow) < seen * 2 // 3


@pytest.mark.parametrize(
    ("length", "rows", "expected"),
    [
        (300, 1, [((0, 256), (0, 256)), ((256, 300), (256, 300))]),
        (300, 2, [((0, 256), (0, 256)), ((256, 300), (256, 300)), ((300, 556), (0, 256)), ((556, 600), (256, 300))]),
        (100, 5, [((0, 200), (0, 100)), ((200, 400), (0, 100)), ((400, 500), (0, 100))]),
        (100, 2, [((0, 200), (0, 100))]),
    ],
)
def test_rows_come_as_whole_sequences_or_as_parts_of_one(
    length: int, rows: int, expected: list[object], llama: ModelSpec
) -> None:
    assert row_tiles(builder(llama, length, rows, {"row_tile": min(256, length * rows)}), length * rows) == expected
    whole = builder(llama, length, rows, {"row_tile": length * rows})
    assert row_tiles(whole, length * rows) == [((0, length * rows), (0, length))]


def test_one_row_of_an_answer_is_one_tile(llama: ModelSpec) -> None:
    assert row_tiles(builder(llama, 300, 2, {"row_tile": 256}), 1) == [((0, 1), (0, 1))]
