# SPDX-License-Identifier: Apache-2.0
"""Several stores on one state, and a disk that is really full."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bespoke.errors import DiskFull, StateError, StateLocked
from tests.native.core_store import CoreStore, JournalRow
from tests.native.state_lab import SHAPES

from .conftest import OpenState
from .states import adapter, add, digest, fill, slot_tensors, summary, token_row


def test_the_error_of_a_second_trainer_says_who_holds_the_lock_and_since_when(
    tmp_path: Path, open_state: OpenState
) -> None:
    with open_state(tmp_path) as first, open_state(tmp_path) as second:
        with first.trainer_lock("a long training"):
            with pytest.raises(StateLocked) as caught, second.trainer_lock():
                pass
            note = json.loads((tmp_path / "trainer.lock").read_text())
            assert f"process {note['pid']} since {note['since']} (a long training)" in caught.value.got
            add(second, "others may add meanwhile")
        with second.trainer_lock():
            pass


def leave_scratch_and_fail(store: CoreStore) -> None:
    assert not store.scratch_path.exists()
    store.scratch_path.write_bytes(b"working copies")
    raise DiskFull("scratch", got="no room", expected="room", next_step="Free some")


def test_the_lock_is_free_again_after_an_error_and_the_scratch_file_is_gone(
    tmp_path: Path, open_state: OpenState
) -> None:
    with open_state(tmp_path) as store:
        store.scratch_path.write_bytes(b"of a killed trainer")
        with pytest.raises(DiskFull), store.trainer_lock():
            leave_scratch_and_fail(store)
        assert not store.scratch_path.exists()
        with store.trainer_lock():
            pass


@pytest.mark.parametrize("note", [b"", b"{", b"[1]", b'{"pid": "x"}', b"[" * 5000, b"\xff" * 5000])
def test_a_holder_that_left_no_readable_note_still_holds(tmp_path: Path, note: bytes, open_state: OpenState) -> None:
    with open_state(tmp_path) as store, store.trainer_lock():
        (tmp_path / "trainer.lock").write_bytes(note)
        with pytest.raises(StateLocked, match="has not said"), store.trainer_lock():
            pass


def test_another_store_adds_examples_while_one_commits(tmp_path: Path, open_state: OpenState) -> None:
    def adds() -> None:
        with open_state(tmp_path / "alice") as other:
            for number in range(25):
                add(other, f"added meanwhile {number}")

    with open_state(tmp_path / "alice") as store:
        for number in range(5):
            add(store, f"there before {number}")
        run = store.start_run("mesp", 0, {}, store.example_ids(), 1000)
        adder = threading.Thread(target=adds)
        adder.start()
        step = 0
        while adder.is_alive():
            step += 1
            assert store.commit_step(run.id, step=step, cursor={}, tensors=slot_tensors(step))
        assert len(store.examples()) == 30
        assert len(store.run(run.id).example_ids) == 5
        slot = store.latest_slot(run.id)
        assert slot is not None
        assert digest(slot.tensors) == digest(slot_tensors(step))


def test_a_run_forgotten_by_another_process_ends_at_its_next_commit(tmp_path: Path, open_state: OpenState) -> None:
    folder = tmp_path / "alice"
    fill(folder, open_state)
    with open_state(folder) as trainer, open_state(folder) as app:
        run = trainer.current_run()
        assert run is not None
        assert trainer.ended_because(run.id) is None
        app.forget("note-1")
        assert trainer.ended_because(run.id) == "example_forgotten"
        assert not trainer.commit_step(run.id, step=6, cursor={}, tensors=slot_tensors(6))
        assert trainer.accept(run.id, adapter(6), {}) is None
        assert list(folder.glob("*.safetensors")) == []


def test_opening_while_another_commits_never_takes_its_new_file(tmp_path: Path, open_state: OpenState) -> None:
    stop = threading.Event()
    opened = 0

    def opens() -> None:
        nonlocal opened
        while not stop.is_set():
            open_state(tmp_path / "alice").close()
            opened += 1

    with open_state(tmp_path / "alice") as store:
        run = store.start_run("mesp", 0, {}, [], 1000)
        thread = threading.Thread(target=opens)
        thread.start()
        try:
            for step in range(15):
                store.commit_step(run.id, step=step, cursor={}, tensors=slot_tensors(step))
                slot = store.latest_slot(run.id)
                assert slot is not None
                assert slot.step == step
        finally:
            stop.set()
            thread.join()
    assert opened > 0


def test_a_store_whose_state_another_process_moved_to_another_base_makes_and_gives_no_adapter(
    tmp_path: Path, open_state: OpenState
) -> None:
    with open_state(tmp_path) as stale:
        add(stale, "kept by both")
        first = stale.start_run("mesp", 0, {}, stale.example_ids(), 10)
        version = stale.accept(first.id, adapter(1), {})
        stale.end_run(first.id, "finished")
        with open_state(tmp_path) as other:
            other.reset_base("e" * 64, SHAPES, lambda example: [token_row(1, 2, 3)])
        for attempt in (
            lambda: stale.start_run("mesp", 0, {}, stale.example_ids(), 10),
            lambda: stale.import_version(adapter(2), "elsewhere"),
            lambda: stale.load_version(version or 0),
        ):
            with pytest.raises(StateError, match="a state of the base model eeee"):
                attempt()
    with open_state(tmp_path, "e" * 64) as store:
        assert store.accepted() == []
        assert store.current_run() is None
    assert list(tmp_path.glob("*.safetensors")) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 KB."""
    with disk(tmp_path / "disk", "512k") as place:
        yield place


@contextmanager
def disk(place: Path, size: str) -> Iterator[Path]:
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], capture_output=True)
    if mounted.returncode:
        pytest.skip(
            "mounting a small disk is not permitted here (a limit on file size and injected errors are tried too)"
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_loses_nothing_and_says_so(small_disk: Path, open_state: OpenState) -> None:
    folder = small_disk / "alice"
    fill(folder, open_state)
    outcomes: list[DiskFull | None] = []
    for free_bytes in range(0, 128 * 1024, 4096):
        with open_state(folder) as store:
            run = store.current_run()
            assert run is not None
            before = summary(store)
            room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            (small_disk / "filler").write_bytes(b"x" * (room - free_bytes))
            step = run.step + 1
            try:
                store.commit_step(run.id, step=step, cursor={}, tensors=slot_tensors(step), metrics=[{"step": step}])
                store.append_journal(run.id, [JournalRow(step + 1, {}, [1.0] * 3000)])
                add(store, f"step {step}" * 500)
                outcomes.append(None)
            except DiskFull as error:
                outcomes.append(error)
            if outcomes[-1]:
                assert "Free some space" in outcomes[-1].next_step
                assert summary(store)["slot"][0] in (before["slot"][0], step)
                assert len(list(folder.glob("slot_*"))) <= 2
            (small_disk / "filler").unlink()
            last = store.run(run.id).step
            assert store.commit_step(run.id, step=last, cursor={}, tensors=slot_tensors(last))
        if not outcomes[-1]:
            break
        with open_state(folder) as store:
            assert len(store.examples()) >= 7
    assert isinstance(outcomes[0], DiskFull)
    assert outcomes[-1] is None


def test_a_state_on_a_full_disk_is_opened_listed_and_forgotten_from(tmp_path: Path, open_state: OpenState) -> None:
    with disk(tmp_path / "disk", "12m") as place:
        folder = place / "alice"
        fill(folder, open_state)
        room = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        (place / "filler").write_bytes(b"x" * room)
        assert os.statvfs(place).f_bavail == 0
        with open_state(folder) as store:
            before = store.example_ids()
            with pytest.raises(DiskFull):
                add(store, "one more " * 200_000)
            assert store.forget(before[0]).example
            assert store.example_ids() == before[1:]
        with open_state(folder) as store:  # and again, with what forgetting has freed
            assert store.forget(before[1]).example
            assert store.example_ids() == before[2:]
        (place / "filler").unlink()
        with open_state(folder) as store:
            assert add(store, "there is room again") in store.example_ids()
            assert (folder / "reserve").stat().st_size == 1 << 20


def test_a_state_cannot_be_made_on_a_full_disk(small_disk: Path, open_state: OpenState) -> None:
    for free_bytes in range(0, 200 * 1024, 8192):
        room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        (small_disk / "filler").write_bytes(b"x" * max(0, room - free_bytes))
        try:
            open_state(small_disk / "alice").close()
            break
        except DiskFull:
            continue
        finally:
            (small_disk / "filler").unlink()
    with open_state(small_disk / "alice") as store:
        assert add(store, "works") in store.example_ids()
