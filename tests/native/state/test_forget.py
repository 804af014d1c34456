# SPDX-License-Identifier: Apache-2.0
"""Forgetting: the example, what saw it, and every byte of it in the folder."""

from __future__ import annotations

import itertools
import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bespoke.rules.records import Forgotten
from tests.native.core_store import CoreStore, JournalRow, state_lab
from tests.native.state_lab import BASE, SHAPES
from tests.support.faults_library import compile_faults
from tests.support.faulty import KILL_AFTER, KILL_BEFORE

from .conftest import OpenState
from .states import adapter, add, all_bytes, slot_tensors
from .states import open_state as open_state_of_core


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


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_faults(tmp_path_factory.mktemp("faults"))


REMAINS = 18  # bytes of an id that count as left


def remains(id: str, folder: Path) -> bool:
    found = all_bytes(folder)
    return any(id[at : at + REMAINS].encode() in found for at in range(len(id) - REMAINS + 1))


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A state, and an id of it of which a copy is left when its row is deleted, in spite of SQLite's secure_delete."""
    place = tmp_path_factory.mktemp("lasting")
    chance = random.Random(1)  # one deletion in some hundreds leaves a copy: with these ids one does
    ids = ["".join(chance.choices("abcdefghijklmnop", k=chance.randrange(40, 200))) for _ in range(400)]
    with open_state_of_core(place / "alice") as store:
        for number, id in enumerate(ids):
            add(store, f"text {number}", id=id)
    for id in ids:
        copy = shutil.copytree(place / "alice", place / "copy")
        with closing(sqlite3.connect(copy / "state.sqlite")) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            with connection:
                connection.execute("DELETE FROM examples WHERE id = ?", (id,))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        found = remains(id, copy)
        shutil.rmtree(copy)
        if found:
            return place / "alice", id
    raise AssertionError("SQLite left nothing of any of them")


@pytest.mark.parametrize("mode", [KILL_BEFORE, KILL_AFTER])
def test_a_forget_that_is_killed_anywhere_leaves_no_byte_after_the_next_open(
    lasting: tuple[Path, str], tmp_path: Path, faults: Path, mode: int
) -> None:
    filled, id = lasting
    killed = forgotten = 0
    for call in itertools.count():
        folder = Path(shutil.copytree(filled, tmp_path / f"{call}"))
        store = CoreStore.open(state_lab(), folder, BASE, SHAPES, faults)
        store.act("arm", call=call, mode=mode, error=0)
        try:
            store.forget(id)
            break
        except EOFError:
            killed += 1
        finally:
            store.close()
        with open_state_of_core(folder) as opened:
            known = id in opened.example_ids()
        forgotten += not known
        assert known or not remains(id, folder), f"killed at call {call}"
    assert killed > forgotten > 1
    assert not remains(id, folder)


def test_the_scratch_of_a_killed_trainer_goes_with_the_next_open(tmp_path: Path) -> None:
    many = tmp_path / "alice"
    with open_state_of_core(many) as store:
        store.scratch_path.write_bytes(b"what a killed trainer had there")
    with open_state_of_core(many) as store:
        assert not store.scratch_path.exists()


def test_forgetting_keeps_every_other_example_and_a_sound_database(tmp_path: Path) -> None:
    """Rows of all sizes, among them such that overflow a page, against SQLite's own check and a copy of what was added."""
    chance = random.Random(17)
    kept: dict[str, str] = {}
    with open_state_of_core(tmp_path / "alice") as store:
        for number in range(150):
            text = f"{number} " + "".join(chance.choices("abcdefgh", k=chance.choice([0, 30, 300, 900, 4000, 9000])))
            kept[add(store, text, id=f"{number}" + "-" * chance.choice([0, 50, 200]))] = text
            if number % 10 == 9:
                gone = chance.choice(sorted(kept))
                del kept[gone]
                store.forget(gone)
        assert {info.id: info.json for info in store.examples()} == {id: {"text": text} for id, text in kept.items()}
        rows = {row.id: row.tokens.tolist() for row in store.example_rows(list(kept))}
    assert rows == {id: [1, *text.encode()] for id, text in kept.items()}
    with closing(sqlite3.connect(tmp_path / "alice" / "state.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_forget_takes_little_memory_and_writes_little_of_a_large_state(tmp_path: Path) -> None:
    with open_state_of_core(tmp_path / "alice") as store:
        for number in range(2000):
            add(store, f"{number} " + "words of an example " * 100)
        size = sum(path.stat().st_size for path in store.folder.iterdir())
        assert size > 20_000_000
        ids = store.example_ids()
        store.forget(ids[0])
        before, written = anonymous_peak(store), bytes_written(store)
        store.forget(ids[1000])
        assert anonymous_peak(store) - before < 2_000_000
        assert bytes_written(store) - written < size / 10


def anonymous_peak(store: CoreStore) -> int:
    """The most resident memory so far of the process that has this store, in bytes; it maps no file of this size."""
    status = Path(f"/proc/{store.process}/status").read_text()
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])


def bytes_written(store: CoreStore) -> int:
    return int(re.findall(r"wchar: (\d+)", Path(f"/proc/{store.process}/io").read_text())[0])


def test_the_scratch_of_a_trainer_at_work_is_left_to_it(store: CoreStore) -> None:
    with store.trainer_lock():
        store.scratch_path.write_bytes(b"working copies")
        store.forget("1")
        assert store.scratch_path.exists()
    assert not store.scratch_path.exists()
