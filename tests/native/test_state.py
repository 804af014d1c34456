# SPDX-License-Identifier: Apache-2.0
"""The core's store, action by action, and two processes on one folder."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.errors import AdapterError, StateError, StateLocked
from tests.native.state.states import SHAPES, adapter, add, fill, open_state, slot_tensors
from tests.native.state_lab import CoreState, as_text, given

LAB = "tests/state_lab"
METRICS = [{"step": 6, "loss": "2.5", "rejected": False}]


@pytest.fixture(scope="session")
def program(native_build: Path) -> Path:
    return native_build / LAB


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "alice"
    fill(folder)
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "alice"))


def commit_of(step: int, place: Path, seed: int | None = None) -> dict[str, Any]:
    return {
        "run": 2,
        "step": step,
        "cursor": as_text({"user_position": 2 * step, "step": step, "general_position": 0}),
        "metrics": [as_text({**entry, "step": step}) for entry in METRICS],
        **given(slot_tensors(step if seed is None else seed), place),
    }


def test_the_core_writes_a_file_that_others_read(program: Path, folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    with CoreState(program) as core:
        core.open(folder).act("commit", **commit_of(6, tmp_path))
    found = load_file(max(folder.glob("slot_*")))
    assert {name: tensor.tobytes() for name, tensor in found.items()} == {
        name: tensor.tobytes() for name, tensor in slot_tensors(6).items()
    }


def test_a_run_of_the_core_is_over_all_examples_in_their_order(program: Path, folder: Path) -> None:
    with CoreState(program) as core, open_state(folder) as store:
        core.open(folder)
        with pytest.raises(StateError, match="unfinished"):
            core.act("start", method="mesp", seed=0, settings="{}", steps=1)
        core.act("end", run=2, reason="replaced")
        with pytest.raises(StateError, match="no such version"):
            core.act("start", method="mesp", seed=0, settings="{}", steps=1, **{"from": 9})
        id = core.act("start", method="mesp", seed=5, settings='{"training":{}}', steps=7, **{"from": 1})
        run = store.run(id)
        assert run.example_ids == tuple(store.example_ids())
        assert core.act("end", run=id, reason="finished")
        assert not core.act("end", run=id, reason="again")
        assert store.ended_because(id) == core.act("ended", run=id) == "finished"
        with pytest.raises(StateError, match="no such run"):
            core.act("run", run=99)


def test_two_slots_and_three_adapters_are_kept(program: Path, folder: Path, tmp_path: Path) -> None:
    with CoreState(program) as core:
        core.open(folder)
        for step in range(6, 12):
            assert core.act("commit", **commit_of(step, tmp_path))
            assert core.act("accept", run=2, metrics="{}", **given(adapter(step), tmp_path))
        # The one that the run started from, and three more.
        assert [version[0] for version in core.act("summary")["accepted"]] == [1, 5, 6, 7]
    assert len(list(folder.glob("slot_*"))) == 2
    assert len(list(folder.glob("accepted_*"))) == 4


def test_an_earlier_step_is_never_committed_over_a_later_one(program: Path, folder: Path, tmp_path: Path) -> None:
    row = {"cursor": "{}", "bits": [], "rejected": False, "metrics": "{}"}
    with CoreState(program) as core:
        before = core.open(folder).act("summary")
        with pytest.raises(StateError, match="a commit of step 4"):
            core.act("commit", **commit_of(4, tmp_path))
        for rows in ([{**row, "step": 5}], [{**row, "step": 6}, {**row, "step": 6}], [{**row, "step": -1}]):
            with pytest.raises(StateError, match="step"):
                core.act("journal", run=2, rows=rows)
        assert core.act("summary") == before


@pytest.mark.parametrize("fault", ["missing", "foreign", "shape", "foreign state", "no piece left"])
def test_tensors_that_are_not_the_adapter_are_refused_and_named(
    program: Path, folder: Path, tmp_path: Path, fault: str
) -> None:
    tensors = slot_tensors(1)
    name = "block_01.down_proj.lora_A"
    if fault == "missing":
        del tensors[name]
    elif fault == "foreign":
        tensors[name := "block_07.q_proj.lora_A"] = np.zeros(3, np.float32)
    elif fault == "shape":
        tensors[name] = tensors[name].T.copy()
    elif fault == "no piece left":
        tensors, name = {}, min(SHAPES)
    else:
        tensors[name := "m"] = np.zeros(3, np.float32)
    with CoreState(program) as core:
        before = core.open(folder).act("summary")
        with pytest.raises(AdapterError) as caught:
            core.act("commit", **{**commit_of(6, tmp_path), **given(tensors, tmp_path)})
        assert name in caught.value.subject
        assert core.act("summary") == before


@pytest.mark.parametrize("fault", ["nan", "optimizer state", "missing"])
def test_an_adapter_that_cannot_answer_is_never_accepted(
    program: Path, folder: Path, tmp_path: Path, fault: str
) -> None:
    tensors = adapter(1)
    if fault == "nan":
        tensors["block_00.q_proj.lora_B"][0, 0] = np.nan
    elif fault == "missing":
        tensors.popitem()
    else:
        tensors = slot_tensors(1)
    with CoreState(program) as core:
        before = core.open(folder).act("summary")
        with pytest.raises(AdapterError):
            core.act("accept", run=2, metrics="{}", **given(tensors, tmp_path))
        assert core.act("summary") == before
    assert len(list(folder.glob("accepted_*"))) == 1


def test_what_another_process_forgets_ends_the_run(program: Path, folder: Path, tmp_path: Path) -> None:
    with CoreState(program) as core, open_state(folder) as store:
        core.open(folder)
        core.act("hold_row")
        assert core.act("read_held")
        assert core.act("ended", run=2) is None
        store.forget(store.example_ids("train")[0])
        assert core.act("ended", run=2) == "example_forgotten"
        assert not core.act("read_held")
        assert not core.act("commit", **commit_of(6, tmp_path))
        assert not core.act("journal", run=2, rows=[])
        assert core.act("accept", run=2, metrics="{}", **given(adapter(6), tmp_path)) is None
        assert list(folder.glob("*.safetensors")) == []
        store.reset()
        assert core.act("ended", run=2) == "reset"


def test_the_first_trainer_locks_out_the_second(program: Path, folder: Path) -> None:
    with CoreState(program) as core, open_state(folder) as store:
        core.open(folder).act("lock", purpose="a long training")
        with pytest.raises(StateLocked) as caught, store.trainer_lock():
            pass
        note = json.loads((folder / "trainer.lock").read_text())
        assert set(note) == {"pid", "since", "host_started_at", "purpose"}
        assert note["pid"] == core.process.pid
        assert caught.value.got == f"a lock held by process {note['pid']} since {note['since']} (a long training)"
        core.act("unlock")
        with store.trainer_lock("the next one"):
            second_note = json.loads((folder / "trainer.lock").read_text())
            assert second_note["pid"] != note["pid"]
            assert second_note["host_started_at"] == note["host_started_at"]
            with pytest.raises(StateLocked) as caught:
                core.act("lock")
            assert (
                caught.value.got
                == f"a lock held by process {second_note['pid']} since {second_note['since']} (the next one)"
            )
            (folder / "trainer.lock").write_bytes(b'{"pid": "x"}')
            with pytest.raises(StateLocked, match="has not said"):
                core.act("lock")
        store.scratch_path.write_bytes(b"of a killed trainer")
        core.act("lock")
        assert not store.scratch_path.exists()
        core.process.kill()  # a killed holder holds nothing
        core.process.wait()
        with store.trainer_lock():
            pass


def test_two_processes_write_to_one_state_at_once(program: Path, folder: Path, tmp_path: Path) -> None:
    """The core commits while another process adds, lists and opens: nobody takes another's new file."""
    with CoreState(program) as core, open_state(folder) as store:
        core.open(folder)
        for step in range(6, 26):
            assert core.act("commit", **commit_of(step, tmp_path))
            add(store, f"added at {step}")
            with open_state(folder) as another:
                assert another.run(2).step == step
                assert another.latest_slot(2) is not None
        assert core.act("summary")["examples"] == 27


def test_leftovers_of_a_killed_commit_are_removed_at_open(program: Path, folder: Path) -> None:
    before = {path.name for path in folder.glob("*.safetensors")}
    content = max(folder.glob("slot_*")).read_bytes()
    for name in ("slot_00000002_00000000.safetensors.partial", "slot_00000009_0a0b0c0d.safetensors"):
        (folder / name).write_bytes(content)
    (folder / "accepted_00000002_00000000.safetensors").symlink_to("/etc/passwd")
    (folder / "foreign.txt").write_text("stays")
    passwd = Path("/etc/passwd").read_bytes()
    kept = (folder / "slot_00000009_0a0b0c0d.safetensors").open("rb")  # as another process may have it mapped
    with CoreState(program) as core:
        core.open(folder)
    assert {path.name for path in folder.glob("*.safetensors*")} == before
    assert not any(kept.read())
    assert (folder / "foreign.txt").exists()
    assert Path("/etc/passwd").read_bytes() == passwd


def test_another_base_or_adapter_is_refused(program: Path, folder: Path) -> None:
    with CoreState(program) as core:
        with pytest.raises(StateError, match="reset_for_new_base"):
            core.open(folder, base="f" * 64)
        with pytest.raises(StateError, match="reset_for_new_base"):
            core.open(folder, shapes={**SHAPES, "block_00.q_proj.lora_A": (4, 6)})


@pytest.mark.parametrize("place", ["file", "below a file", "read-only system"])
def test_a_place_that_cannot_hold_a_state_is_refused(program: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("no folder")
    path = {
        "file": tmp_path / "file",
        "below a file": tmp_path / "file" / "x",
        "read-only system": Path("/proc/alice"),
    }[place]
    with CoreState(program) as core, pytest.raises(StateError) as caught:
        core.open(path)
    assert str(path if place != "below a file" else tmp_path / "file") in caught.value.subject


def test_numbers_are_written_as_python_writes_them(program: Path) -> None:
    chance = random.Random(3)
    numbers = [
        0.0,
        -0.0,
        1.0,
        1e15,
        1e16,
        123456789012345680.0,
        1e-4,
        1e-5,
        0.1,
        1 / 3,
        5e-324,
        1.7976931348623157e308,
        2.5,
        100.0,
    ]
    numbers += [struct.unpack("<d", chance.randbytes(8))[0] for _ in range(300)]
    numbers += [float(np.float32(chance.gauss(0, 3))) for _ in range(300)]
    with CoreState(program) as core:
        for number in numbers:
            if math.isfinite(number):
                assert core.act("repr", number=number) == repr(number)


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"step":-1}', '{"step":1.5}', '{"step":4294967296}', '{"row":1}', '{"step":true}']
)
def test_a_cursor_that_is_none_is_refused(program: Path, text: str) -> None:
    with CoreState(program) as core, pytest.raises(StateError):
        core.act("cursor", text=text)


def test_a_cursor_comes_back(program: Path) -> None:
    with CoreState(program) as core:
        assert core.act("cursor", text="{}") == '{"general_position":0,"step":0,"user_position":0}'
        text = '{"general_position":5,"step":4294967295,"user_position":9007199254740993}'
        assert core.act("cursor", text=text) == text


def test_an_open_store_takes_little_anonymous_memory(program: Path, tmp_path: Path) -> None:
    """With 168 pieces (0.5B's linears), AdamW's state and one commit: the arena is what memory is for."""
    shapes = {f"block_{n:02}.{kind}.lora_{side}": (8, 96) for n in range(24) for kind in "abcdefg" for side in "AB"}
    tensors = {f"{name}{end}": np.ones(shape, np.float32) for name, shape in shapes.items() for end in ("", ".m", ".v")}
    folder = tmp_path / "alice"
    with open_state(folder, "a" * 64, shapes) as store:
        for number in range(200):
            add(store, f"text {number} " * 20)
    with CoreState(program) as core:
        core.open(folder, base="a" * 64, shapes=shapes)
        opened = core.act("grown")
        run = core.act("start", method="mesp", seed=0, settings='{"training":{}}', steps=10)
        grown = []
        for step in range(1, 5):
            assert core.act("commit", run=run, step=step, cursor="{}", **given(tensors, tmp_path))
            grown.append(core.act("grown"))
    print(f"an open store: {opened / 1e3:.0f} KB; commits: {[round(bytes / 1e3) for bytes in grown]} KB")
    assert opened <= 400_000  # 348 to 352 KB: pages of 4 KB
    assert sum(grown) <= 150_000  # the tensors are 3.1 MB
