# SPDX-License-Identifier: Apache-2.0
"""Several processes and threads on one state, and a disk that is really full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke.errors import DiskFull, StateLocked
from bespoke.state import JournalRow, StateStore
from bespoke.state.errors import disk_full

from .states import adapter, add, digest, fill, open_state, slot_tensors, summary, token_row

REPOSITORY = Path(__file__).resolve().parents[3]


def lab(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.crash_lab", *map(str, arguments)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_error_of_a_second_trainer_says_who_holds_the_lock_and_since_when(tmp_path: Path) -> None:
    with open_state(tmp_path / "alice") as store:
        holder = lab("hold_trainer_lock", store.folder)
        try:
            assert holder.stdout is not None
            pid = json.loads(holder.stdout.readline())["pid"]
            with pytest.raises(StateLocked) as caught, store.trainer_lock():
                pass
            note = json.loads((store.folder / "trainer.lock").read_text())
            assert note["pid"] == pid == holder.pid
            assert f"process {pid} since {note['since']} (a long training)" in caught.value.got
            add(store, "others may add meanwhile")
        finally:
            holder.kill()
            holder.wait()
        with store.trainer_lock("the next one"):  # a killed holder holds nothing
            assert json.loads((store.folder / "trainer.lock").read_text())["pid"] == os.getpid()


def test_a_second_trainer_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    with open_state(tmp_path) as first, open_state(tmp_path) as second:
        with first.trainer_lock(), pytest.raises(StateLocked, match=f"process {os.getpid()}"), second.trainer_lock():
            pass
        with second.trainer_lock():
            pass


def leave_scratch_and_fail(store: StateStore) -> None:
    assert not store.scratch_path.exists()
    store.scratch_path.write_bytes(b"working copies")
    raise disk_full("scratch", "no room")


def test_the_lock_is_free_again_after_an_error_and_the_scratch_file_is_gone(tmp_path: Path) -> None:
    with open_state(tmp_path) as store:
        store.scratch_path.write_bytes(b"of a killed trainer")
        with pytest.raises(DiskFull), store.trainer_lock():
            leave_scratch_and_fail(store)
        assert not store.scratch_path.exists()
        with store.trainer_lock():
            pass


@pytest.mark.parametrize("note", [b"", b"{", b"[1]", b'{"pid": "x"}', b"[" * 5000, b"\xff" * 5000])
def test_a_holder_that_left_no_readable_note_still_holds(tmp_path: Path, note: bytes) -> None:
    with open_state(tmp_path) as store, store.trainer_lock():
        (tmp_path / "trainer.lock").write_bytes(note)
        with pytest.raises(StateLocked, match="has not said"), store.trainer_lock():
            pass


def test_another_process_adds_examples_while_one_commits(tmp_path: Path) -> None:
    with open_state(tmp_path / "alice") as store:
        for number in range(5):
            add(store, f"there before {number}")
        run = store.start_run("mesp", 0, {}, store.example_ids(), 1000)
        adder = lab("add_many", store.folder, 25)
        step = 0
        while adder.poll() is None:
            step += 1
            assert store.commit_step(run.id, step=step, cursor={}, tensors=slot_tensors(step))
        assert adder.returncode == 0
        assert len(store.examples()) == 30
        assert len(store.run(run.id).example_ids) == 5
        slot = store.latest_slot(run.id)
        assert slot is not None
        assert digest(slot.tensors) == digest(slot_tensors(step))


def test_threads_share_a_store(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def adds(name: str) -> None:
        try:
            for number in range(10):
                store.add_example({"text": f"{name} {number}"}, [token_row(1, 2)])
                store.examples()
        except BaseException as error:
            errors.append(error)

    with open_state(tmp_path / "alice") as store:
        run = store.start_run("mesp", 0, {}, [], 1000)
        threads = [threading.Thread(target=adds, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for step in range(10):
            store.commit_step(run.id, step=step, cursor={}, tensors=slot_tensors(step))
            store.append_journal(run.id, [])
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(store.examples()) == 20
        assert store.run(run.id).step == 9


def test_a_run_forgotten_by_another_process_ends_at_its_next_commit(tmp_path: Path) -> None:
    folder = tmp_path / "alice"
    fill(folder)
    with open_state(folder) as trainer, open_state(folder) as app:
        run = trainer.current_run()
        assert run is not None
        assert trainer.ended_because(run.id) is None
        app.forget("note-1")
        assert trainer.ended_because(run.id) == "example_forgotten"
        assert not trainer.commit_step(run.id, step=6, cursor={}, tensors=slot_tensors(6))
        assert trainer.accept(run.id, adapter(6), {}) is None
        assert list(folder.glob("*.safetensors")) == []


def test_opening_while_another_commits_never_takes_its_new_file(tmp_path: Path) -> None:
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", place], capture_output=True)
    if mounted.returncode:
        pytest.skip(
            "mounting a small disk is not permitted here (a limit on file size and injected errors are tried too)"
        )
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_loses_nothing_and_says_so(small_disk: Path) -> None:
    folder = small_disk / "alice"
    fill(folder)
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


def test_a_state_cannot_be_made_on_a_full_disk(small_disk: Path) -> None:
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
