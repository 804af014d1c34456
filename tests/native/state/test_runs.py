# SPDX-License-Identifier: Apache-2.0
"""Runs, commits, journal, accepted adapters: what was committed comes back, bit for bit, and nothing else."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bespoke.errors import AdapterError, StateError
from bespoke.rules.records import Run
from tests.native.core_store import CoreStore, JournalRow

from .conftest import OpenState
from .states import adapter, add, slot_tensors, summary


@pytest.fixture
def store(tmp_path: Path, open_state: OpenState):
    with open_state(tmp_path / "alice") as opened:
        for number in range(6):
            add(opened, f"text {number}", id=str(number))
        yield opened


@pytest.fixture
def run(store: CoreStore) -> Run:
    return store.start_run("mesp", 2**63 - 1, {"learning_rate": 0.1, "nested": {"a": [1]}}, ["3", "1"], 10)


def files(store: CoreStore, kind: str) -> list[str]:
    return sorted(path.name for path in store.folder.glob(f"{kind}_*"))


def test_a_run_keeps_what_it_was_started_with(store: CoreStore, run: Run, open_state: OpenState) -> None:
    with open_state(store.folder) as again:
        assert again.current_run() == again.run(run.id) == run
    assert (run.method, run.seed, run.steps, run.step, run.cursor) == ("mesp", 2**63 - 1, 10, 0, {})
    assert (run.settings, run.example_ids) == ({"learning_rate": 0.1, "nested": {"a": [1]}}, ("3", "1"))


def test_a_second_run_waits_for_the_end_of_the_first(store: CoreStore, run: Run) -> None:
    with pytest.raises(StateError, match="unfinished"):
        store.start_run("mezo", 0, {}, [], 1)
    assert store.end_run(run.id, "superseded")
    assert not store.end_run(run.id, "again")
    assert store.run(run.id).ended_because == store.ended_because(run.id) == "superseded"
    assert store.current_run() is None
    assert store.start_run("mezo", 0, {}, [], 1).id > run.id


def test_a_run_from_an_unknown_version_is_refused(store: CoreStore) -> None:
    with pytest.raises(StateError, match="no such version"):
        store.start_run("mesp", 0, {}, ["0"], 1, started_from=5)
    assert store.current_run() is None


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_is_no_63_bit_number_is_refused(store: CoreStore, seed: int) -> None:
    with pytest.raises(StateError, match="seed"):
        store.start_run("mesp", seed, {}, [], 1)


def test_a_committed_step_comes_back_bit_for_bit(store: CoreStore, run: Run, open_state: OpenState) -> None:
    tensors = slot_tensors(1)
    odd = tensors["block_00.q_proj.lora_A"].reshape(-1)
    odd.view(np.uint32)[:6] = [0x7FC00001, 0xFF800000, 0x00000001, 0x80000000, 0x7F7FFFFF, 0xFFC12345]
    tensors["block_00.q_proj.lora_B"] = np.asfortranarray(tensors["block_00.q_proj.lora_B"])
    assert store.commit_step(run.id, step=1, cursor={"row": 3, "x": 0.1}, tensors=tensors, metrics=[{"loss": 1.5}])
    with open_state(store.folder) as again:
        slot = again.latest_slot(run.id)
        assert slot is not None
        assert (slot.step, slot.cursor) == (1, {"row": 3, "x": 0.1})
        assert set(slot.tensors) == set(tensors)
        for name, tensor in tensors.items():
            assert slot.tensors[name].dtype == np.float32
            assert slot.tensors[name].tobytes() == tensor.tobytes()
        assert (again.run(run.id).step, again.run(run.id).cursor) == (1, {"row": 3, "x": 0.1})


def test_a_slot_is_a_safetensors_file_that_others_read(store: CoreStore, run: Run) -> None:
    store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(1))
    found = load_file(store.folder / files(store, "slot")[0])
    assert {name: tensor.tobytes() for name, tensor in found.items()} == {
        name: tensor.tobytes() for name, tensor in slot_tensors(1).items()
    }


def test_two_slots_are_kept_and_the_last_one_answers(store: CoreStore, run: Run) -> None:
    assert store.latest_slot(run.id) is None
    kept = []
    for step in range(1, 6):
        store.commit_step(run.id, step=step, cursor={}, tensors=slot_tensors(step))
        kept.append(set(files(store, "slot")))
    assert [len(names) for names in kept] == [1, 2, 2, 2, 2]
    assert len(kept[3] & kept[4]) == 1
    slot = store.latest_slot(run.id)
    assert slot is not None
    assert slot.step == 5
    np.testing.assert_array_equal(slot.tensors["block_00.q_proj.lora_A"], slot_tensors(5)["block_00.q_proj.lora_A"])


def test_an_earlier_step_is_never_committed_over_a_later_one(store: CoreStore, run: Run) -> None:
    store.commit_step(run.id, step=5, cursor={}, tensors=slot_tensors(5))
    with pytest.raises(StateError, match="step 4"):
        store.commit_step(run.id, step=4, cursor={}, tensors=slot_tensors(4))
    with pytest.raises(StateError, match="step 5"):
        store.append_journal(run.id, [JournalRow(5, {}, [1.0])])
    assert store.commit_step(run.id, step=5, cursor={"again": 1}, tensors=slot_tensors(6))
    assert store.run(run.id).cursor == {"again": 1}


@pytest.mark.parametrize("fault", ["missing", "foreign", "shape", "foreign state"])
def test_tensors_that_are_not_the_adapter_are_refused_and_named(store: CoreStore, run: Run, fault: str) -> None:
    tensors = slot_tensors(1)
    name = "block_01.down_proj.lora_A"
    if fault == "missing":
        del tensors[name]
    elif fault == "foreign":
        tensors[name := "block_07.q_proj.lora_A"] = np.zeros(3, np.float32)
    elif fault == "shape":
        tensors[name] = tensors[name].T
    else:
        tensors[name := "m"] = np.zeros(3, np.float32)
    with pytest.raises(AdapterError) as caught:
        store.commit_step(run.id, step=1, cursor={}, tensors=tensors)
    assert name in caught.value.subject
    assert store.latest_slot(run.id) is None
    assert files(store, "slot") == []


def test_the_journal_keeps_32_bit_floats_bit_for_bit(store: CoreStore, run: Run, open_state: OpenState) -> None:
    values = np.random.default_rng(0).integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([values[np.isfinite(values)], np.float32([0.0, -0.0, np.inf, -np.inf, 1e-45])])
    rows = [
        JournalRow(1, {"row": 0}, [float(value) for value in values], False, {"loss": 1.0}),
        JournalRow(2, {"row": 1}, [math.nan], True, {"loss": math.nan}),
        JournalRow(5, {"row": 2}, []),
    ]
    assert store.append_journal(run.id, rows[:2])
    assert store.append_journal(run.id, rows[2:])
    with open_state(store.folder) as again:
        found = again.journal(run.id)
        assert np.array(found[0].values, np.float32).tobytes() == values.tobytes()
        assert [(row.step, row.cursor, row.rejected) for row in found] == [
            (1, {"row": 0}, False),
            (2, {"row": 1}, True),
            (5, {"row": 2}, False),
        ]
        assert math.isnan(found[1].values[0])
        assert [row.step for row in again.journal(run.id, after_step=1)] == [2, 5]
        assert (again.run(run.id).step, again.run(run.id).cursor) == (5, {"row": 2})


def test_journal_rows_out_of_order_are_refused_together(store: CoreStore, run: Run) -> None:
    with pytest.raises(StateError, match="step 1"):
        store.append_journal(run.id, [JournalRow(1, {}, []), JournalRow(1, {}, [])])
    assert store.journal(run.id) == []


def test_metrics_of_slots_and_journal_come_back_in_order(store: CoreStore, run: Run) -> None:
    store.append_journal(run.id, [JournalRow(step, {}, [], False, {"step": step}) for step in (1, 2)])
    store.commit_step(run.id, step=2, cursor={}, tensors=slot_tensors(2))
    store.append_journal(run.id, [JournalRow(3, {}, [], False, {"step": 3})])
    store.commit_step(run.id, step=6, cursor={}, tensors=slot_tensors(6), metrics=[{"step": s} for s in (4, 5, 6)])
    assert [entry["step"] for entry in store.metrics(run.id)] == [1, 2, 3, 4, 5, 6]


def test_an_ended_run_takes_no_more_commits(store: CoreStore, run: Run) -> None:
    store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(1))
    store.end_run(run.id, "finished")
    assert not store.commit_step(run.id, step=2, cursor={}, tensors=slot_tensors(2))
    assert not store.append_journal(run.id, [JournalRow(2, {}, [])])
    assert files(store, "slot") == []
    assert store.run(run.id).step == 1


def test_accepted_adapters_answer_newest_first_and_three_are_kept(store: CoreStore, run: Run) -> None:
    assert store.current_version() is None
    for seed in range(5):
        store.commit_step(run.id, step=seed, cursor={}, tensors=slot_tensors(seed))
        store.accept(run.id, adapter(seed), {"validation_loss": float(seed)})
    listed = store.accepted()
    assert [(version.run_id, version.step, version.metrics) for version in listed] == [
        (run.id, seed, {"validation_loss": float(seed)}) for seed in (2, 3, 4)
    ]
    assert store.current_version() == listed[-1]
    assert len(files(store, "accepted")) == 3
    for seed, version in zip((2, 3, 4), listed, strict=True):
        found = store.load_version(version.id)
        assert {name: tensor.tobytes() for name, tensor in found.items()} == {
            name: tensor.tobytes() for name, tensor in adapter(seed).items()
        }
    with pytest.raises(StateError, match="no such version"):
        store.load_version(1)


def test_rollback_goes_back_version_by_version_to_the_base(store: CoreStore, run: Run) -> None:
    ids = [store.accept(run.id, adapter(seed), {}) for seed in range(2)]
    back = store.rollback()
    assert back is not None
    assert back.id == ids[0]
    assert store.rollback() is None
    assert store.rollback() is None
    assert (store.accepted(), files(store, "accepted")) == ([], [])
    assert store.accept(run.id, adapter(9), {}) is None
    assert store.start_run("mesp", 0, {}, [], 1).id > run.id


def test_rollback_ends_the_run_that_would_bring_the_adapter_back(store: CoreStore, run: Run) -> None:
    store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(1))
    store.accept(run.id, adapter(1), {})
    store.rollback()
    assert store.ended_because(run.id) == "rolled_back"
    assert not store.commit_step(run.id, step=2, cursor={}, tensors=slot_tensors(2))
    assert files(store, "slot") == []


def test_version_ids_are_never_used_again(store: CoreStore, run: Run) -> None:
    first = store.accept(run.id, adapter(1), {})
    store.rollback()
    second = store.import_version(adapter(2), "peft folder")
    assert first is not None
    assert second > first
    version = store.current_version()
    assert version is not None
    assert (version.run_id, version.source) == (None, "peft folder")


def test_the_adapter_that_a_run_started_from_outlives_the_three_newer_ones(store: CoreStore, run: Run) -> None:
    start = store.accept(run.id, adapter(0), {})
    store.end_run(run.id, "finished")
    second = store.start_run("mezo", 0, {}, [], 10, started_from=start)
    for seed in range(1, 5):
        store.accept(second.id, adapter(seed), {})
    assert start is not None
    assert store.load_version(start)
    store.end_run(second.id, "finished")
    store.import_version(adapter(9), "x")
    assert len(store.accepted()) == 3


@pytest.mark.parametrize("fault", ["nan", "optimizer state", "missing"])
def test_an_adapter_that_cannot_answer_is_never_accepted(store: CoreStore, run: Run, fault: str) -> None:
    tensors = adapter(1)
    if fault == "nan":
        tensors["block_00.q_proj.lora_B"][0, 0] = np.nan
    elif fault == "missing":
        tensors.popitem()
    else:
        tensors = slot_tensors(1)
    with pytest.raises(AdapterError):
        store.accept(run.id, tensors, {})
    with pytest.raises(AdapterError):
        store.import_version(tensors, "x")
    assert files(store, "accepted") == []


def test_reset_keeps_examples_only(store: CoreStore, run: Run) -> None:
    store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(1))
    store.append_journal(run.id, [JournalRow(2, {}, [1.0])])
    store.accept(run.id, adapter(1), {})
    examples = store.examples()
    store.reset()
    assert (store.examples(), store.accepted(), store.current_run()) == (examples, [], None)
    assert files(store, "slot") == files(store, "accepted") == []
    assert store.ended_because(run.id) == "reset"
    assert not store.commit_step(run.id, step=3, cursor={}, tensors=slot_tensors(3))
    assert store.accept(run.id, adapter(1), {}) is None


def test_leftovers_of_a_killed_commit_are_removed_at_open(store: CoreStore, run: Run, open_state: OpenState) -> None:
    store.commit_step(run.id, step=1, cursor={}, tensors=slot_tensors(1))
    named = files(store, "slot")
    content = (store.folder / named[0]).read_bytes()
    for name in ("slot_00000002_00000000.safetensors.partial", "slot_00000009_0a0b0c0d.safetensors"):
        (store.folder / name).write_bytes(content)
    (store.folder / "accepted_00000002_00000000.safetensors").symlink_to("/etc/passwd")
    (store.folder / "foreign.txt").write_text("stays")
    passwd = hashlib.sha256(Path("/etc/passwd").read_bytes()).digest()
    with open_state(store.folder) as again:
        assert files(again, "slot") == named
        assert files(again, "accepted") == []
        assert summary(again) == summary(store)
    assert (store.folder / "foreign.txt").exists()
    assert hashlib.sha256(Path("/etc/passwd").read_bytes()).digest() == passwd
