# SPDX-License-Identifier: Apache-2.0
"""The core's store keeps the rejected answer of a preference with the chosen one, and forgets it too; read by SQLite itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import DataError
from tests.native.core_store import CoreStore
from tests.native.state.states import BASE, SHAPES


@pytest.fixture
def store(native_build: Path, tmp_path: Path) -> Iterator[CoreStore]:
    with CoreStore.open(native_build / "tests" / "state_lab", tmp_path / "alice", BASE, SHAPES) as opened:
        yield opened


def kept(store: CoreStore) -> list[Any]:
    with store.database() as database:
        return database.execute("SELECT tokens, mask, rejected_tokens, rejected_mask FROM example_rows").fetchall()


def test_a_preference_is_kept_whole_and_forgotten_whole(store: CoreStore) -> None:
    store.act("add", json='{"text": "plain"}', id="plain", rows=[[[1, 2], [0, 1]]])
    row = [[1, 5, 6], [0, 0, 1], [1, 5, 9, 7], [0, 0, 1, 1]]
    store.act("add", json='{"prompt": "a", "chosen": "b", "rejected": "c"}', id="pair", rows=[row])
    (pair,) = (info for info in store.examples() if info.id == "pair")
    assert (pair.tokens, pair.trained_tokens, pair.rows) == (3, 1, 1)
    plain, whole = kept(store)
    assert plain[2:] == (None, None)
    assert whole == (struct.pack("<3i", 1, 5, 6), bytes([0, 0, 1]), struct.pack("<4i", 1, 5, 9, 7), bytes([0, 0, 1, 1]))
    store.forget("pair")
    assert kept(store) == [plain]


@pytest.mark.parametrize(
    "rejected", [([1, 5], [1, 1]), ([1, 5], [0]), ([1], [0]), ([-1, 5], [0, 1]), ([1, 5], [0, 2]), ([], [0, 1])]
)
def test_a_rejected_row_that_is_none_is_refused(store: CoreStore, rejected: tuple[list[int], list[int]]) -> None:
    with pytest.raises(DataError, match="another row of tokens"):
        store.act("add", json='{"a": "b"}', id="x", rows=[[[1, 5, 6], [0, 0, 1], *rejected]])
    assert kept(store) == []
