# SPDX-License-Identifier: Apache-2.0
"""What later versions of the state added, on the core's store; an old state, killed or failing while it is brought to this one."""

from __future__ import annotations

import errno
import random
import shutil
import sqlite3
import zipfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import BespokeError
from tests.kill.conftest import faults, place
from tests.native.core_store import CoreStore
from tests.native.state.conftest import OpenState, Stores, open_state, stores
from tests.native.state.states import BASE, OLD, SHAPES, add, slot_tensors, token_row
from tests.native.state_lab import CoreState
from tests.support.checks import few_of, full, new_seed, record_check
from tests.support.faulty import FAIL, FAIL_FROM, KILL_AFTER, KILL_BEFORE, KILL_TORN, NEVER
from tests.support.reading import read_state

__all__ = ["faults", "open_state", "place", "stores"]

FEW = 15  # faults, in the fast run; in the full one each that there is
NEW_BASE = "e" * 64
SINCE_5 = {"federations", "rounds", "outbox", "round_examples"}
SINCE_4 = {"answers"} | SINCE_5
SINCE_3 = {"judgements", "best_steps"} | SINCE_4
# What a state of that version lacks; of the bytes that a run has written, which came with 4, no digest is made.
SINCE: dict[int, set[str]] = {
    1: {"text", "use", "rejected", "losses"} | SINCE_3,
    2: SINCE_3,
    3: SINCE_4,
    4: SINCE_4,
    5: SINCE_5,
}


def unpacked(version: int, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(OLD[version]) as archive:
        archive.extractall(folder)
    return folder


def digests(state: Path) -> dict[str, str]:
    found: dict[str, str] = read_state(state)["digests"]
    return found


@pytest.mark.parametrize("version", OLD)
def test_an_older_state_goes_on(open_state: OpenState, tmp_path: Path, version: int) -> None:
    with open_state(unpacked(version, tmp_path / "old")) as store:
        run = store.current_run()
        assert store.commit_step(run.id, step=run.step + 1, cursor={}, tensors=slot_tensors(6))
        assert add(store, "one more", id="more") in store.example_ids()
        assert store.forget("note-2").run_stopped


@pytest.mark.parametrize("version", OLD)
def test_an_older_state_takes_a_new_base(stores: Stores, tmp_path: Path, version: int) -> None:
    def retokenize(example: dict[str, Any]) -> Sequence[Any]:
        return [token_row(2, *example["text"].encode())]

    state = unpacked(version, tmp_path / "old")
    with stores.reset_for_new_base(state, NEW_BASE, SHAPES, retokenize) as store:
        assert len(store.examples()) == 7
        assert store.accepted() == []
    assert set(digests(state)) >= SINCE[version]


def opened(program: Path, library: Path, state: Path, call: int, mode: int, error: int = 0) -> tuple[str, list[str]]:
    """What opening came to ("opened", "killed", an error's name), with a fault at that call, and the calls that it made."""
    with CoreState(program, library) as core:
        core.act("arm", call=call, mode=mode, error=error)
        try:
            core.open(state)
            return "opened", core.act("log").splitlines()
        except EOFError:
            return "killed", []
        except BespokeError as problem:
            return type(problem).__name__, []


@pytest.mark.parametrize("version", few_of(OLD, (2,)))
def test_killed_or_failing_inside_it_is_of_the_old_version_or_the_new_one(
    native_build: Path, faults: Path, place: Path, version: int
) -> None:
    program, state = native_build / "tests" / "state_lab", place / "alice"
    _, calls = opened(program, faults, unpacked(version, state), NEVER, KILL_BEFORE)
    new = digests(state)
    old = digests(unpacked(version, state))
    assert new.keys() - old.keys() == SINCE[version]
    kills = [(call, mode, 0) for call in range(len(calls)) for mode in (KILL_BEFORE, KILL_AFTER, KILL_TORN)]
    errors = [
        (call, mode, error)
        for call in range(len(calls))
        for mode, error in ((FAIL, errno.EIO), (FAIL_FROM, errno.ENOSPC))
    ]
    seed = new_seed()
    done: Counter[str] = Counter()
    for call, mode, error in random.Random(seed).sample(kills + errors, len(kills + errors) if full() else FEW):
        where = f"call {call} of {len(calls)} ({calls[call]}), mode {mode}, error {error}, seed {seed}"
        outcome, _ = opened(program, faults, unpacked(version, state), call, mode, error)
        found = digests(state)
        assert found in (old, new), where
        assert outcome != "opened" or found == new, where
        done[f"{outcome} and {'new' if found == new else 'old'}"] += 1
        with CoreStore.open(program, state, BASE, SHAPES):
            pass
        assert digests(state) == new, where
    assert {outcome.split()[0] for outcome in done} <= {"killed", "opened", "StateError", "DiskFull"}
    record_check(f"a state of version {version}, killed or failing while the core's store opens it", dict(done), seed)


def test_what_is_for_training_only_is_never_held_out(native_build: Path, tmp_path: Path) -> None:
    with CoreStore.open(native_build / "tests" / "state_lab", tmp_path / "alice", BASE, SHAPES) as store:
        splits = []
        for number in range(60):
            use = {"use": "train"} if number % 2 else {}
            splits.append(store.act("add", json=f'{{"text":"{number}"}}', rows=[[[1, 2], [0, 1]]], **use)[1])
        assert set(splits[1::2]) == {"train"}
        assert splits.count("validation") >= 6
    found = read_state(tmp_path / "alice")
    assert (found["validation"], found["broken"]) == (splits.count("validation"), [])


@pytest.mark.parametrize("verb", ["forget", "reset"])
def test_losses_go_with_what_they_may_have_been_measured_on(open_state: OpenState, tmp_path: Path, verb: str) -> None:
    with open_state(tmp_path / "alice") as store:
        add(store, "x", id="x")
    with closing(sqlite3.connect(tmp_path / "alice" / "state.sqlite")) as connection, connection:
        connection.execute("INSERT INTO losses VALUES (0, ?, 2.5)", ("a" * 64,))
    with open_state(tmp_path / "alice") as store:
        store.forget("x") if verb == "forget" else store.reset()
    with closing(sqlite3.connect(tmp_path / "alice" / "state.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM losses").fetchone() == (0,)
