# SPDX-License-Identifier: Apache-2.0
"""Examples: identity, the fixed split, refusal of what cannot be trained on."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bespoke.errors import BespokeError, DataError, StateError
from tests.native.core_store import CoreStore

from .conftest import OpenState, Stores
from .states import SHAPES, adapter, add, summary, token_row


@pytest.fixture
def store(tmp_path: Path, open_state: OpenState):
    with open_state(tmp_path / "alice") as opened:
        yield opened


def test_a_new_folder_and_its_files_are_private_to_their_owner(tmp_path: Path, open_state: OpenState) -> None:
    with open_state(tmp_path / "deep" / "alice") as store:
        add(store, "hello")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()}
        assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
        assert set(modes.values()) == {0o600}
        assert {"state.sqlite", "state.sqlite-wal"} <= set(modes)


def test_the_id_defaults_to_the_hash_of_the_canonical_json(store: CoreStore) -> None:
    added = store.add_example({"b": "ü", "a": [1, 2.5]}, [token_row(1, 2)])
    assert added.id == hashlib.sha256('{"a":[1,2.5],"b":"ü"}'.encode()).hexdigest()
    again = store.add_example({"a": [1, 2.5], "b": "ü"}, [token_row(1, 2)])
    assert (again.id, again.created, added.created) == (added.id, False, True)
    assert len(store.examples()) == 1


def test_the_same_id_with_other_content_is_refused_and_named(store: CoreStore) -> None:
    add(store, "one", id="42")
    with pytest.raises(DataError) as caught:
        add(store, "two", id="42")
    assert "42" in caught.value.subject
    assert "forget" in caught.value.next_step
    assert [info.json for info in store.examples()] == [{"text": "one"}]


def test_rows_come_back_in_the_order_asked_for(store: CoreStore) -> None:
    store.add_example({"text": "x"}, [token_row(5, 6, 7), token_row(8, 9)], "x")
    store.add_example({"text": "y"}, [token_row(1, 2**31 - 1)], "y")
    rows = store.example_rows(["y", "x"])
    assert [(row.id, row.window, row.tokens.tolist(), row.mask.tolist()) for row in rows] == [
        ("y", 0, [1, 2**31 - 1], [0, 1]),
        ("x", 0, [5, 6, 7], [0, 0, 1]),
        ("x", 1, [8, 9], [0, 1]),
    ]
    assert {(row.tokens.dtype, row.mask.dtype) for row in rows} == {(np.dtype("int32"), np.dtype("uint8"))}
    info = store.examples()[0]
    assert (info.tokens, info.trained_tokens, info.rows) == (5, 2, 2)


def test_the_split_follows_the_hash_and_keeps_one_in_ten_for_validation(store: CoreStore) -> None:
    validation = 0
    for count in range(1, 120):
        id = f"example {count}"
        chosen = int(hashlib.sha256(id.encode()).hexdigest(), 16) % 10 == 0
        expected = count >= 5 and (chosen or validation < count / 10)
        added = store.add_example({"text": id}, [token_row(1, 2)], id)
        assert (added.split == "validation") == expected
        validation += expected
    assert store.example_ids("validation") == [info.id for info in store.examples() if info.split == "validation"]
    assert len(store.example_ids("train")) + validation == len(store.example_ids()) == 119


def test_the_split_stays_when_others_are_forgotten_or_the_state_is_reopened(
    store: CoreStore, open_state: OpenState
) -> None:
    for number in range(20):
        add(store, str(number), id=str(number))
    before = {info.id: info.split for info in store.examples()}
    for number in range(0, 20, 3):
        store.forget(str(number))
    with open_state(store.folder) as again:
        assert {info.id: info.split for info in again.examples()}.items() <= before.items()


HOSTILE = [
    ({"text": float("nan")}, "nan"),
    ({"text": "\ud800"}, "half a surrogate pair"),
    (["text"], "a list"),
    ({"text": "x" * (16 * 2**20)}, "too long"),
]


@pytest.mark.parametrize(("example", "what"), HOSTILE, ids=[what for _, what in HOSTILE])
def test_an_example_that_is_no_json_is_refused(store: CoreStore, example: dict, what: str) -> None:
    with pytest.raises(DataError):
        store.add_example(example, [token_row(1, 2)])
    assert store.examples() == []


@pytest.mark.parametrize("id", ["", "x" * 257, "a\0b"], ids=repr)
def test_an_id_that_cannot_be_stored_is_refused(store: CoreStore, id: str) -> None:
    with pytest.raises(DataError):
        store.add_example({"text": "x"}, [token_row(1, 2)], id)
    with pytest.raises(DataError):
        store.forget(id)


def row(tokens: object, mask: object) -> SimpleNamespace:
    return SimpleNamespace(tokens=np.array(tokens), mask=np.array(mask))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [token_row(1, 2, trained=0)],
        [row(np.array([1, 2], np.int32), np.array([0, 1, 1], np.uint8))],
        [row(np.array([1], np.int32), np.array([0], np.uint8))],
        [row(np.array([1, -2], np.int32), np.array([0, 1], np.uint8))],
        [row(np.array([1, 2], np.int32), np.array([0, 2], np.uint8))],
        [row(np.array([1, 2], np.int32), np.array([1, 1], np.uint8))],
    ],
)
def test_rows_that_nothing_could_train_on_are_refused(store: CoreStore, rows: list) -> None:
    with pytest.raises(DataError):
        store.add_example({"text": "x"}, rows)
    assert store.examples() == []


def test_another_base_is_refused_and_the_error_names_the_reset(store: CoreStore, open_state: OpenState) -> None:
    add(store, "hello")
    with pytest.raises(StateError, match="reset_for_new_base"):
        open_state(store.folder, base="f" * 64)
    with pytest.raises(StateError, match="reset_for_new_base"):
        open_state(store.folder, shapes={**SHAPES, "block_00.q_proj.lora_A": (4, 6)})


def test_reset_for_a_new_base_keeps_examples_and_tokenizes_them_again(store: CoreStore, stores: Stores) -> None:
    for number in range(6):
        add(store, f"text {number}", id=str(number))
    run = store.start_run("mesp", 0, {}, store.example_ids(), 1)
    store.accept(run.id, adapter(1), {})
    splits = {info.id: info.split for info in store.examples()}
    store.close()

    def retokenize(example: dict) -> list:
        return [] if example["text"] == "text 3" else [token_row(3, *map(ord, example["text"]))]

    shapes = {"block_00.v_proj.lora_A": (1, 3)}
    with stores.reset_for_new_base(store.folder, "e" * 64, shapes, retokenize) as fresh:
        assert fresh.example_ids() == ["0", "1", "2", "4", "5"]
        assert {info.id: info.split for info in fresh.examples()}.items() <= splits.items()
        assert fresh.example_rows(["1"])[0].tokens.tolist() == [3, *map(ord, "text 1")]
        assert (fresh.current_run(), fresh.accepted()) == (None, [])
        assert fresh.import_version({"block_00.v_proj.lora_A": np.ones((1, 3), np.float32)}, "elsewhere")
    with stores.open(store.folder, base="e" * 64, shapes=shapes) as again:
        assert len(again.accepted()) == 1


def test_an_example_that_the_new_base_cannot_take_leaves_everything_as_it_was(store: CoreStore, stores: Stores) -> None:
    for number in range(3):
        add(store, f"text {number}", id=str(number))
    before = summary(store)
    store.close()

    def refuse(example: dict) -> list:
        if example["text"] == "text 1":
            raise DataError("roles", got="system", expected="user first", next_step="Drop it")
        return [token_row(1, 2)]

    with pytest.raises(DataError, match="example '1'"):
        stores.reset_for_new_base(store.folder, "e" * 64, SHAPES, refuse)
    with stores.open(store.folder) as again:
        assert summary(again) == before


def test_opening_twice_changes_nothing(store: CoreStore, open_state: OpenState) -> None:
    add(store, "hello", id="1")
    with open_state(store.folder) as second:
        add(second, "again", id="2")
        assert summary(second) == summary(store)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path, open_state: OpenState) -> None:
    folder = tmp_path / "sealed"
    folder.mkdir(mode=0o500)
    with pytest.raises(StateError, match="writ"):
        open_state(folder)


@pytest.mark.parametrize("place", ["file", "below a file", "read-only system"])
def test_a_place_that_cannot_hold_a_state_is_refused(tmp_path: Path, place: str, open_state: OpenState) -> None:
    (tmp_path / "file").write_text("no folder")
    path = {"file": tmp_path / "file", "below a file": tmp_path / "file" / "x", "read-only system": Path("/proc/alice")}
    with pytest.raises(BespokeError) as caught:
        open_state(path[place])
    assert isinstance(caught.value, StateError)
