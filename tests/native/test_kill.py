# SPDX-License-Identifier: Apache-2.0
"""The core killed, failed and starved of disk while it trains: a run resumes and ends with the bits of an undisturbed one.

kill -9 at any instant of a process, and at every call that changes a file; errors and torn writes at those calls; a full disk.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.native.core_lab import (
    JOURNALED,
    METHODS,
    PAUSE,
    STEPS,
    Core,
    Ended,
    States,
    Undisturbed,
    a_kill,
    faults_library,
    tiny_core_bundle,
    undisturbed,
)
from tests.support.checks import few_of
from tests.support.faulty import FAIL, FAIL_FROM, KILL_AFTER, KILL_BEFORE, KILL_TORN
from tests.support.statuses import STATUS

__all__ = ["faults_library", "tiny_core_bundle", "undisturbed"]

KILLED = -9
DISK_OR_STATE = (STATUS["StateError"], STATUS["DiskFull"])
FAIL_SHORT = 5  # a part of the write arrives, and nothing after it
KILL_MODES = [KILL_BEFORE, KILL_TORN, KILL_AFTER]
# Kills of each method at any instant, in addition to those at a call: 2 in the fast tests, 200 in all of them.
FEW = {"mesp": 1, "mezo": 1}
MANY = {"mesp": 50, "mebp": 50, "mezo": 50, "prge": 50}
MOST_OF_ONE_RUN = 6  # then it is left alone to its end

pytestmark = pytest.mark.xdist_group("core")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: flushes to a disk would test the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Subject:
    """One method: the core, states to begin with, and how it ends undisturbed."""

    core: Core
    states: States
    expected: Undisturbed
    place: Path


@pytest.fixture
def subject_of(
    native_build: Path, tiny_core_bundle: Path, faults_library: Path, place: Path
) -> Callable[[str], Subject]:
    core = Core(native_build / "bespoke-core", tiny_core_bundle, faults_library)

    def make(method: str) -> Subject:
        states = States(tiny_core_bundle, place, method)
        expected = undisturbed(core, states, place)
        assert expected.pause["step"] == len(expected.pause["losses"]) == PAUSE
        assert expected.end["ended"] == "finished"
        assert expected.end["step"] == len(expected.end["losses"]) == STEPS
        assert expected.end["accepted"][0] == STEPS  # the last process has something to lose
        assert (expected.pause["slot"] is None) == bool(expected.pause["journal"]) == (method in JOURNALED)
        return Subject(core, states, expected, place)

    return make


@pytest.mark.parametrize("counts", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)])
def test_a_run_killed_at_any_instant_ends_bit_equal_to_an_undisturbed_one(
    subject_of: Callable[[str], Subject], counts: dict[str, int]
) -> None:
    total: Counter[str] = Counter()
    for method, count in counts.items():
        subject = subject_of(method)
        chance = random.Random(count)
        done: Counter[str] = Counter()
        while done["at any instant"] < count:
            done += killed_run(subject, min(MOST_OF_ONE_RUN, count - done["at any instant"]), chance)
        assert count < 20 or done["between the first step and the last"] * 3 > count
        total += done
        print(f"\n| kill -9 of the core, {method} | {shown(done)} | all ended bit-equal |")
    assert total["at any instant"] == sum(counts.values())
    print(f"\n| kill -9 of the core, all | {shown(total)} | all ended bit-equal |")


def killed_run(subject: Subject, most: int, chance: random.Random) -> Counter[str]:
    """One run, its processes killed at most `most` times; judged before its last step and at its end."""
    folder = subject.states.fresh(subject.place / "state")
    done: Counter[str] = Counter(runs=1)
    before_pause = chance.randint(0, most)
    for phase, until in ((0, before_pause), (1, most)):
        while not subject.states.has_ended(folder) if phase == 1 else subject.states.step(folder) < PAUSE:
            left = PAUSE - subject.states.step(folder) if phase == 0 else 0
            how = a_kill(subject.expected, phase, chance, KILL_MODES) if done["kills"] < until else {}
            ended = subject.core.train(folder, most_steps=left, threads=chance.choice((1, 2)), **how)
            if ended.code == KILLED:
                done += Counter(
                    {"kills": 1, "at a call that changes a file": "fault" in how, "at any instant": "fault" not in how}
                )
                done["between the first step and the last"] += 0 < subject.states.step(folder) < STEPS
            assert ended.code == 0 or (ended.code == KILLED and how), ended
        if phase == 0:
            assert subject.states.at_pause(folder) == subject.expected.pause
    assert subject.states.at_end(folder) == subject.expected.end
    return done


@pytest.mark.parametrize(
    ("method", "every"), [("mesp", 29), *(pytest.param(method, 1, marks=pytest.mark.slow) for method in METHODS)]
)
@pytest.mark.parametrize("faulty", few_of(("kill", "error"), ("kill",)))
def test_at_every_call_of_a_training_process_a_fault_loses_nothing(
    subject_of: Callable[[str], Subject], method: str, every: int, faulty: str
) -> None:
    """The process that does the last step, from opening the state over the commit and the gate to the end of the run.

    The faults take turns; each of them at each call is tried on the store alone (test_state_faults.py).
    """
    subject = subject_of(method)
    paused = subject.states.fresh(subject.place / "paused")
    assert subject.core.train(paused, most_steps=PAUSE).code == 0
    calls = subject.expected.calls[1]
    modes = [(mode, 0) for mode in KILL_MODES] if faulty == "kill" else ERRORS
    outcomes: Counter[str] = Counter()
    folder = subject.place / "state"
    for number, call in enumerate(range(0, len(calls), every)):
        mode, error = modes[number % len(modes)]
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(paused, folder)
        ended = subject.core.train(folder, fault=(call, mode, error))
        where = f"call {call} ({calls[call]}), mode {mode}, error {error}: {ended}"
        outcomes[judged(ended, faulty, where)] += 1
        at_end = subject.states.at_end(folder)
        if at_end["ended"] is None:
            assert at_end["step"] in (PAUSE, STEPS), where
            assert subject.core.train(folder).code == 0, where
            at_end = subject.states.at_end(folder)
        assert at_end == subject.expected.end, where
    total = sum(outcomes.values())
    text = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
    print(f"\n| faults while the core trains, {method} | {total} of {len(calls)} calls | {text} |")
    assert outcomes["killed"] * 3 > total if faulty == "kill" else outcomes["DiskFull"] * 3 > total


ERRORS = [
    (FAIL, errno.EIO),
    (FAIL_FROM, errno.ENOSPC),
    (FAIL_SHORT, errno.ENOSPC),
    (FAIL, errno.ENOSPC),
    (FAIL_FROM, errno.EIO),
    (FAIL_FROM, errno.EDQUOT),
    (FAIL_SHORT, errno.EIO),
]


def judged(ended: Ended, faulty: str, where: str) -> str:
    if ended.code == 0:
        return "no harm"
    if faulty == "kill":
        assert ended.code == KILLED, where
        return "killed"
    assert ended.code in DISK_OR_STATE, where
    assert ended.error is not None, where
    assert ended.error["next_step"], where
    assert ended.error["kind"] in ("DiskFull", "StateError"), where
    return str(ended.error["kind"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], capture_output=True).returncode:
        pytest.skip("mounting a small disk is not permitted here (injected errors are tried too)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.slow
def test_a_full_disk_under_scratch_file_and_commits_loses_nothing(
    subject_of: Callable[[str], Subject], small_disk: Path
) -> None:
    """With ever more room: none for the state's log, none for the scratch file, none for a commit, enough."""
    subject = subject_of("mesp")
    folder = subject.states.fresh(small_disk / "state")
    filler = small_disk / "filler"
    steps, refused, said = 0, 0, Counter[str]()
    for free in range(0, 512 * 1024, 8192):
        room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        filler.write_bytes(b"x" * max(0, room - free))
        ended = subject.core.train(folder, most_steps=PAUSE - steps)
        filler.unlink()
        assert not (folder / "scratch").exists()
        assert ended.code in (0, *DISK_OR_STATE), ended
        if ended.error is not None:
            assert ended.error["kind"] == "DiskFull", ended
            refused += 1
            said["scratch" if "scratch" in ended.error["expected"] + ended.error["got"] else "commit"] += 1
        steps = subject.states.step(folder)
        if steps == PAUSE:
            break
    assert said["scratch"] > 0
    assert said["commit"] > 0
    print(f"\n| full disk under the core | {refused} refusals: {dict(said)} | the run went on each time |")
    assert subject.states.at_pause(folder) == subject.expected.pause
    assert subject.core.train(folder).code == 0
    assert subject.states.at_end(folder) == subject.expected.end


def shown(done: Counter[str]) -> str:
    places = ", ".join(f"{count} {name}" for name, count in done.items() if name not in ("kills", "runs"))
    return f"{done['kills']} kills in {done['runs']} runs ({places})"
