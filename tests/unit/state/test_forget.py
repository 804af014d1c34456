# SPDX-License-Identifier: Apache-2.0
"""Forgetting: the example, what saw it, and every byte of it in the folder."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bespoke.rules.records import Forgotten
from tests.native.core_store import CoreStore, JournalRow

from .conftest import OpenState
from .states import adapter, add, all_bytes, slot_tensors


@pytest.fixture
def store(tmp_path: Path, open_state: OpenState):
    with open_state(tmp_path / "alice") as opened:
        for number in range(8):
            add(opened, f"text {number}", id=str(number))
        yield opened


def train(store: CoreStore, ids: list[str], seed: int, started_from: int | None = None) -> tuple[int, int]:
    """A finished run with an accepted adapter: (run, version)."""
    run = store.start_run("mesp", seed, {}, ids, 1, started_from)
    store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(seed))
    version = store.accept(run.id, adapter(seed), {})
    store.end_run(run.id, "finished")
    assert version is not None
    return run.id, version


def test_adapters_that_saw_the_example_go_and_the_newest_that_did_not_answers(store: CoreStore) -> None:
    _, clean = train(store, ["0", "1"], seed=1)
    _, second = train(store, ["0", "2"], seed=2)
    train(store, ["2", "3"], seed=3)
    assert store.forget("2") == Forgotten(example=True, accepted_deleted=2, run_stopped=False)
    current = store.current_version()
    assert current is not None
    assert current.id == clean != second
    assert len(list(store.folder.glob("accepted_*"))) == 1
    assert "2" not in store.example_ids()
    assert store.forget("0").accepted_deleted == 1
    assert store.current_version() is None


def test_what_grew_out_of_an_adapter_that_saw_the_example_goes_too(store: CoreStore) -> None:
    run, version = train(store, ["0"], seed=1)
    _, child = train(store, ["1"], seed=2, started_from=version)
    for seed in (3, 4, 5):  # push the first out of the three kept: its children remember it
        _, child = train(store, ["1"], seed=seed, started_from=child)
    assert version not in [kept.id for kept in store.accepted()]
    unfinished = store.start_run("mesp", 6, {}, ["1"], 1, child)
    assert store.forget("0") == Forgotten(example=True, accepted_deleted=3, run_stopped=True)
    assert store.ended_because(unfinished.id) == store.ended_because(run) == "example_forgotten"
    assert store.current_version() is None


def test_a_run_that_uses_the_example_ends_and_leaves_nothing(store: CoreStore) -> None:
    run = store.start_run("mezo", 1, {}, ["3", "4"], 9)
    store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(1), metrics=[{"loss": 1.0}])
    store.append_journal(run.id, [JournalRow(2, {"row": 1}, [1.0])])
    assert store.forget("4") == Forgotten(example=True, accepted_deleted=0, run_stopped=True)
    assert store.ended_because(run.id) == "example_forgotten"
    assert store.current_run() is None
    assert store.journal(run.id) == store.metrics(run.id) == []
    assert list(store.folder.glob("slot_*")) == []
    assert not store.commit_step(run.id, step=3, cursor={}, tensors=slot_tensors(3))
    assert not store.append_journal(run.id, [JournalRow(3, {}, [1.0])])
    assert store.accept(run.id, adapter(3), {}) is None
    assert list(store.folder.glob("*.safetensors")) == []


def test_a_finished_run_is_not_accepted_after_its_example_was_forgotten(store: CoreStore) -> None:
    run = store.start_run("mesp", 1, {}, ["3"], 1)
    store.end_run(run.id, "finished")
    assert not store.forget("3").run_stopped
    assert store.accept(run.id, adapter(1), {}) is None


def test_a_run_that_does_not_use_the_example_goes_on(store: CoreStore) -> None:
    run = store.start_run("mesp", 1, {}, ["3"], 9)
    store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(1))
    assert store.forget("4") == Forgotten(example=True, accepted_deleted=0, run_stopped=False)
    assert store.latest_slot(run.id) is not None
    assert store.commit_step(run.id, step=2, cursor={}, tensors=slot_tensors(2))


def test_forgetting_twice_or_what_never_was_is_no_error(store: CoreStore) -> None:
    store.forget("1")
    assert store.forget("1") == store.forget("never") == Forgotten(False, 0, False)


def test_a_forgotten_example_may_come_back_as_a_new_one(store: CoreStore) -> None:
    store.forget("1")
    added = store.add_example({"text": "other"}, [store.example_rows(["2"])[0]], "1")
    assert added.created


def test_no_byte_of_a_forgotten_example_remains_in_any_file(tmp_path: Path, open_state: OpenState) -> None:
    """Many sizes and much coming and going: balancing leaves copies of cells behind that deleting does not zero."""
    chance = random.Random(11)
    with open_state(tmp_path / "alice") as store, open_state(tmp_path / "alice") as other:
        marks: dict[str, str] = {}
        gone: list[str] = []
        for number in range(240):
            mark = f"secret-{chance.randrange(10**12):012d}"
            text = mark + "z" * chance.choice([0, 5, 90, 700, 5000])
            marks[mark] = add(chance.choice([store, other]), text, id=chance.choice([None, f"id of {mark}"]))
            if number % 20 == 19:
                run = store.start_run("mesp", number, {}, list(marks.values()), 1)
                store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(number))
                store.accept(run.id, adapter(number), {})
                weights = adapter(number)["block_00.q_proj.lora_A"].tobytes()
                assert weights in all_bytes(store.folder)
                for mark in chance.sample(sorted(marks), 6):
                    (store.scratch_path).write_bytes(mark.encode() * 3)
                    store.forget(marks.pop(mark))
                    gone.append(mark)
                    found = all_bytes(store.folder)
                    assert weights not in found
                    assert [left for left in gone if left.encode() in found] == []
                assert all(mark.encode() in found for mark in marks)


def test_the_scratch_of_a_trainer_at_work_is_left_to_it(store: CoreStore) -> None:
    with store.trainer_lock():
        store.scratch_path.write_bytes(b"working copies")
        store.forget("1")
        assert store.scratch_path.exists()
    assert not store.scratch_path.exists()
