# SPDX-License-Identifier: Apache-2.0
"""The core's store, killed or failed at every write, fsync, rename and unlink of what it does: the old state or the new one.

faults.c is preloaded into the lab; a store of another process judges what is left. The number of points is printed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import StateError
from tests.native.state.states import adapter, fill, open_state, slot_tensors, summary
from tests.native.state_lab import CoreState, given
from tests.support.checks import few_of
from tests.support.faults_library import compile_faults
from tests.support.faulty import FAIL, FAIL_FROM, KILL_AFTER, KILL_BEFORE, KILL_TORN, NEVER

REPOSITORY = Path(__file__).resolve().parents[2]
FAIL_SHORT = 5  # a part of the write arrives, and nothing after it
LEFT = {"state.sqlite", "files.lock", "trainer.lock", "reserve"}
ROWS = [{"step": step, "cursor": "{}", "bits": [1065353216], "rejected": False, "metrics": "{}"} for step in (6, 7, 8)]

Operation = Callable[[CoreState, Path, Path], Any]  # the state's folder, and a place for data


def commit(core: CoreState, folder: Path, place: Path) -> Any:
    metrics = ['{"loss":"2.5","rejected":false,"step":6}']
    return core.act("commit", run=2, step=6, cursor='{"step":6}', metrics=metrics, **given(slot_tensors(106), place))


OPERATIONS: dict[str, Operation] = {
    "create": lambda core, folder, place: core.open(folder) and None,
    "open": lambda core, folder, place: core.open(folder) and None,
    "commit": commit,
    "journal": lambda core, folder, place: core.act("journal", run=2, rows=ROWS),
    "accept": lambda core, folder, place: core.act("accept", run=2, metrics="{}", **given(adapter(77), place)),
    "end": lambda core, folder, place: core.act("end", run=2, reason="finished"),
    "lock": lambda core, folder, place: (core.act("lock"), core.act("unlock")),
    "add": lambda core, folder, place: core.act(
        "add", id="more", json='{"text":"one more thing"}', rows=[[[1, 2], [0, 1]]]
    ),
    "forget": lambda core, folder, place: core.act("forget", id="note-2"),
    "rollback": lambda core, folder, place: core.act("rollback"),
    "reset": lambda core, folder, place: core.act("reset"),
    "import": lambda core, folder, place: core.act("import", source="elsewhere", **given(adapter(77), place)),
}
KILLS = [(KILL_BEFORE, 0), (KILL_TORN, 0), (KILL_AFTER, 0)]
ERRORS = [
    (FAIL, errno.EIO),
    (FAIL, errno.ENOSPC),
    (FAIL_FROM, errno.EIO),
    (FAIL_FROM, errno.ENOSPC),
    (FAIL_FROM, errno.EDQUOT),
    (FAIL_SHORT, errno.ENOSPC),
    (FAIL_SHORT, errno.EIO),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what a killed commit leaves, so that opening has something to sweep."""
    folder = tmp_path_factory.mktemp("filled") / "alice"
    fill(folder)
    (folder / "slot_00000099_0a0b0c0d.safetensors").write_bytes(max(folder.glob("slot_*")).read_bytes())
    (folder / "scratch").write_bytes(b"of a killed trainer")
    return folder


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_faults(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: thousands of flushes to a disk would test the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


class Trials:
    """One operation, again and again on a fresh copy of one state."""

    def __init__(self, program: Path, faults: Path, filled: Path, place: Path, operation: str) -> None:
        self.program, self.faults, self.filled, self.place, self.operation = program, faults, filled, place, operation
        self.folder = place / "state"

    def attempt(self, call: int, mode: int, error: int) -> tuple[str | None, list[str]]:
        """How the operation ended ("killed", an error's name, None) and the calls it made; then a fresh process goes on."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.operation != "create":
            shutil.copytree(self.filled, self.folder)
        outcome: str | None = None
        calls: list[str] = []
        with CoreState(self.program, self.faults) as core:
            if self.operation not in ("create", "open"):
                core.open(self.folder)
            try:
                core.act("arm", call=call, mode=mode, error=error)
                OPERATIONS[self.operation](core, self.folder, self.place)
                calls = core.act("log").splitlines()
            except EOFError:
                return "killed", []
            except StateError as problem:
                outcome = type(problem).__name__
            self.survives(core)
            return outcome, calls

    def survives(self, core: CoreState) -> None:
        """The process that met the error then reads the state and does what failed."""
        core.act("arm", call=-1, mode=0, error=0)
        if self.operation in ("create", "open"):
            core.open(self.folder)
        core.act("summary")

    def found(self) -> Any:
        with open_state(self.folder) as store:
            return json.loads(json.dumps(summary(store)))

    def goes_on(self) -> None:
        with CoreState(self.program) as core:
            core.open(self.folder)
            run = core.act("summary")["run"]
            id = run[0] if run else core.act("start", method="mesp", seed=1, settings="{}", steps=9)
            core.act("lock")
            assert core.act("commit", run=id, step=20, cursor="{}", **given(slot_tensors(1), self.place))
        assert {path.name for path in self.folder.iterdir() if not path.name.endswith(".safetensors")} <= LEFT


# Each call of every operation in the slow tests; in the fast ones samples of a commit, by the first of the errors.
EVERY = [pytest.param(operation, 1, marks=pytest.mark.slow) for operation in OPERATIONS]


@pytest.mark.parametrize(
    ("operation", "every"), [*EVERY, pytest.param("commit", 3), pytest.param("create", 16), pytest.param("forget", 16)]
)
@pytest.mark.parametrize("faulty", few_of(("kill", "error"), ("kill",)))
def test_at_every_call_a_fault_leaves_the_old_state_or_the_new_one(
    native_build: Path, faults: Path, filled: Path, place: Path, operation: str, every: int, faulty: str
) -> None:
    trials = Trials(native_build / "tests" / "state_lab", faults, filled, place, operation)
    _, calls = trials.attempt(NEVER, KILL_BEFORE, 0)
    after = trials.found()
    before = None
    if operation != "create":
        shutil.rmtree(trials.folder)
        shutil.copytree(filled, trials.folder)
        before = trials.found()
    assert (before == after) == (operation in ("open", "lock"))
    kinds = Counter(call.split()[0] for call in calls)
    assert kinds["fsync"] > 1 or operation in ("lock", "journal", "add")
    modes = KILLS if faulty == "kill" else ERRORS[: None if every == 1 else 4]
    outcomes: Counter[str | None] = Counter()
    states = set()
    for call in range(0, len(calls), every):
        for mode, error in modes:
            outcome, _ = trials.attempt(call, mode, error)
            outcomes[outcome] += 1
            found = trials.found()
            where = f"call {call} ({calls[call]}), mode {mode}, error {error}: {outcome}, {found}"
            assert found in (before, after) or (operation == "create" and found == after), where
            states.add(found == after)
            trials.goes_on()
    points = len(range(0, len(calls), every))
    text = ", ".join(f"{name or 'no harm'} {count}" for name, count in sorted(outcomes.items(), key=str))
    made = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    total = sum(outcomes.values())
    print(
        f"\n| faults of the core's store, {operation} | {points} of {len(calls)} calls ({made}) | {total} faults: {text} |"
    )
    if faulty == "kill":
        assert set(outcomes) <= {"killed", None}  # None: a torn write of a call that writes nothing
        assert outcomes["killed"] >= 2 * points
        assert operation in ("create", "open", "lock") or every > 1 or states == {False, True}
    else:
        assert set(outcomes) <= {"DiskFull", "StateError", None}
        assert operation == "lock" or outcomes["DiskFull"] > 0


def test_a_commit_flushes_its_file_before_the_database_names_it(
    native_build: Path, faults: Path, filled: Path, place: Path
) -> None:
    """A power cut loses what was not flushed; the order of calls is what a test can see of that."""
    trials = Trials(native_build / "tests" / "state_lab", faults, filled, place, "commit")
    _, calls = trials.attempt(NEVER, KILL_BEFORE, 0)
    partial = next(call.split()[1] for call in calls if call.endswith(".partial"))
    last_write = max(i for i, call in enumerate(calls) if call == "pwrite state.sqlite-wal")
    order = [
        max(i for i, call in enumerate(calls) if call == f"write {partial}"),
        calls.index(f"fsync {partial}"),
        calls.index(f"rename {partial.removesuffix('.partial')}"),
        calls.index("fsync state"),
        calls.index("pwrite state.sqlite-wal"),
        max(i for i, call in enumerate(calls) if call == "fsync state.sqlite-wal"),
        next(i for i, call in enumerate(calls) if call.startswith("unlink slot_")),
    ]
    assert order == sorted(order), calls
    assert order[4] <= last_write < order[5]
