# SPDX-License-Identifier: Apache-2.0
"""A process dies or a call fails in the middle of a change: a new process finds the old state or the new one, whole.

Killed: before, after and in the middle of every single call that changes a file, and at random instants. Failing: every
such call in turn with EIO, or all from one on with ENOSPC. faults.c does it, preloaded; it is compiled here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .crash_lab import FAIL, FAIL_FROM, KILL_AFTER, KILL_BEFORE, KILL_TORN
from .states import fill

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "alice"
    fill(folder)
    return folder


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: the faults are put in by a preloaded library")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def lab(*arguments: object, preload: Path | None = None) -> list[dict[str, Any]]:
    """Reports of crash_lab.py run as a program."""
    environment = dict(os.environ)
    if preload is not None:
        environment["LD_PRELOAD"] = str(preload)
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.crash_lab", *map(str, arguments)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: thousands of flushes to a disk would test the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


OPERATIONS = ["create", "commit", "journal", "accept", "add", "forget", "rollback", "end", "reset"]
# Each call of every operation in the slow tests; in the fast ones each second of a commit, samples of two others.
EVERY = [pytest.param(operation, 1, marks=pytest.mark.slow) for operation in OPERATIONS]
SOME = [pytest.param("commit", 2), pytest.param("forget", 11), pytest.param("create", 11)]
LEFT = {"state.sqlite", "files.lock", "trainer.lock"}


@pytest.mark.parametrize(("operation", "every"), [*EVERY, *SOME])
def test_killed_at_every_call_the_state_is_the_old_or_the_new_one(
    faults: Path, filled: Path, place: Path, operation: str, every: int
) -> None:
    modes = json.dumps([KILL_BEFORE, KILL_TORN, KILL_AFTER])
    expected, *trials = lab("at_every_call", filled, place, operation, modes, "", every, preload=faults)
    allowed = [expected["before"], expected["after"]]
    assert operation == "create" or allowed[0] != allowed[1]
    assert sum(trial["killed"] for trial in trials) >= 2 * (len(expected["log"]) // every)
    for trial in trials:
        where = f"call {trial['k']} ({expected['log'][trial['k']]}), mode {trial['mode']}: {trial['found']}"
        assert trial["found"] in allowed, where
        assert trial["again"] == {"value": operation != "forget"}, where
        assert {name for name in trial["left"] if not name.endswith(".safetensors")} <= LEFT, where
    killed = sum(trial["killed"] for trial in trials)
    print(
        f"{operation}: {killed} kills at {len(range(0, len(expected['log']), every))} of {len(expected['log'])} calls"
    )
    if operation != "create" and every == 1:
        found = [trial["found"] for trial in trials]
        assert allowed[0] in found  # killed early
        assert allowed[1] in found  # killed late


@pytest.mark.parametrize(("operation", "every"), [*EVERY, pytest.param("commit", 4)])
@pytest.mark.parametrize(("mode", "error"), [(FAIL, "EIO"), (FAIL_FROM, "ENOSPC"), (FAIL_FROM, "EDQUOT")])
def test_a_failing_call_is_a_typed_error_and_leaves_the_old_or_the_new_state(
    faults: Path, filled: Path, place: Path, operation: str, every: int, mode: int, error: str
) -> None:
    expected, *trials = lab("at_every_call", filled, place, operation, json.dumps([mode]), error, every, preload=faults)
    allowed = [expected["before"], expected["after"]]
    types = set()
    for trial in trials:
        where = f"call {trial['k']} ({expected['log'][trial['k']]}): {trial['answer']}"
        assert not trial["killed"], where
        assert trial["found"] in allowed, where
        assert trial["again"] == {"value": operation != "forget"}, where
        answer = trial["answer"]
        outcome = answer if operation == "create" else answer["value"]["outcome"]
        if outcome and "error" in outcome:
            types.add(outcome["error"])
        if operation != "create":
            assert answer["value"]["alive"] in [state["value"] for state in allowed], where
    assert types <= {"DiskFull", "StateError"}
    if error != "EIO":
        assert "DiskFull" in types


def test_a_commit_flushes_its_file_before_the_database_names_it(faults: Path, filled: Path, place: Path) -> None:
    """A power cut loses what was not flushed; the order of calls is what a test can see of that."""
    expected = lab("at_every_call", filled, place, "commit", "[]", "", 1, preload=faults)[0]
    log = expected["log"]
    partial = next(line.split()[1] for line in log if line.endswith(".partial"))
    slot = partial.removesuffix(".partial")
    order = [
        max(i for i, line in enumerate(log) if line == f"write {partial}"),
        log.index(f"fsync {partial}"),
        log.index(f"rename {slot}"),
        log.index("fsync state"),
        log.index("pwrite state.sqlite-wal"),
        max(i for i, line in enumerate(log) if line == "fsync state.sqlite-wal"),
        next(i for i, line in enumerate(log) if line.startswith("unlink slot_")),
    ]
    assert order == sorted(order), log
    last_write = max(i for i, line in enumerate(log) if line == "pwrite state.sqlite-wal")
    assert order[4] <= last_write < order[5]


@pytest.mark.parametrize("trials", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_random_instants_no_acknowledged_commit_is_lost(filled: Path, place: Path, trials: int) -> None:
    folder = place / "alice"
    shutil.copytree(filled, folder)
    later = 0
    for trial in lab("at_random", folder, trials, 5):
        assert "value" in trial["found"], trial
        step, slot, cursor, last, good, files = trial["found"]["value"]
        assert step in (trial["last_reported"], trial["last_reported"] + 1), trial
        assert step == slot == cursor == last, trial
        assert good, trial
        assert files <= 2, trial
        later += step != trial["last_reported"]
    print(f"{trials} kills, {later} of them after the commit and before its caller heard of it")


def test_a_limit_on_file_size_is_a_full_disk(filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "alice"
    shutil.copytree(filled, folder)
    outcomes = []
    for trial in lab("with_small_files", folder, [0, 100, 1000, 2500, 4000, 8000, 12000, 20000, 10**7]):
        answer = trial["answer"]["value"]
        outcomes.append(answer["outcome"] and answer["outcome"]["error"])
        assert answer["again"]
        if outcomes[-1]:
            assert answer["alive"] == trial["before"]["value"]
    assert set(outcomes) == {"DiskFull", None}
    assert outcomes[-1] is None
