# SPDX-License-Identifier: Apache-2.0
"""A system call that fails, an allocation that is refused: reported as such, never as damage, and nothing is lost.

faults.c lets one call after the other fail: those by which a state is opened, locked, mapped and read, and SQLite's allocations.
The error of a damaged state advises to delete the folder; a moment without memory must not lead there.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.conftest import REPOSITORY
from tests.native.core_lab import faults_library
from tests.sharing import outside
from tests.sharing.c_api import CModel
from tests.support.checks import count, few_of, record_check
from tests.support.faulty import FAIL, FAIL_FROM, NEVER
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["faults_library"]

FAULTS = {
    "unreadable": ("read", FAIL, errno.EIO),
    "unreadable from then on": ("read", FAIL_FROM, errno.EIO),
    "no memory of the system": ("read", FAIL, errno.ENOMEM),
    "no descriptors": ("read", FAIL_FROM, errno.EMFILE),
    "one allocation": ("memory", FAIL, errno.ENOMEM),
    "allocations from then on": ("memory", FAIL_FROM, errno.ENOMEM),
}


@pytest.fixture(scope="module")
def state(tiny_core_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With examples, and an adapter that answers."""
    folder = tmp_path_factory.mktemp("faulty") / "alice"
    with PersonalModel.open(tiny_core_bundle, folder) as model:
        add_numbers(model)
        model.import_adapter(model.export_adapter(folder.parent / "adapter", base=True))
    return folder


def environment(library: Path, fault: str, call: int | None = None, log: Path | None = None) -> dict[str, str]:
    kind, mode, error = FAULTS[fault]
    armed = {} if call is None else {"FAULTS_ARM": f"{call}:{mode}:{error}"}
    return {
        "LD_PRELOAD": str(library),
        "FAULTS_KIND": kind,
        **armed,
        **({} if log is None else {"FAULTS_LOG": str(log)}),
    }


def judged(fault: str, kind: str, text: str) -> None:
    assert "delete" not in text or "Call again; if it stays" in text, text
    assert kind in ("BudgetExceeded", "StateError", "DiskFull", "Unavailable"), (kind, text)
    if FAULTS[fault][0] == "memory":
        assert kind == "BudgetExceeded", text
        assert (
            "no room for an allocation" in text or "room within the limit" in text
        )  # the second where it was ExecuTorch's


# How errors come out of the library into Python.
@pytest.mark.parametrize("fault", few_of(("unreadable from then on", "one allocation"), ("unreadable from then on",)))
def test_a_failing_call_is_reported_as_such_and_nothing_is_lost(
    faults_library: Path, tiny_core_bundle: Path, state: Path, tmp_path: Path, fault: str
) -> None:
    _, mode, error = FAULTS[fault]
    most = count(500)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.sharing.fault_lab",
            tiny_core_bundle,
            state,
            tmp_path,
            str(mode),
            str(error),
            str(most),
        ],
        cwd=REPOSITORY,
        env={**os.environ, **environment(faults_library, fault)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcomes: Counter[str] = Counter()
    kept: set[str] = set()
    for line in done.stdout.splitlines():
        trial = json.loads(line)
        assert not trial["killed"], trial
        outcomes[trial["answer"].get("error", "no harm")] += 1
        if "error" in trial["answer"]:
            judged(fault, trial["answer"]["error"], trial["answer"]["text"])
        else:
            kept.update(trial["answer"]["value"])
        assert "error" not in trial["after"], trial
        assert kept | {"number-0", "number-11"} <= set(trial["after"]["value"])
    assert outcomes.total() > min(most, 3)
    assert some_were_reported(outcomes)
    assert outside.example_ids(state) >= kept
    record_check(f"calls of the store that fail on torch ({fault})", dict(sorted(outcomes.items())))


def some_were_reported(outcomes: Counter[str]) -> bool:
    """Some of the faults were reported: a fault that nobody notices was not injected."""
    return any(name != "no harm" for name in outcomes)


@pytest.mark.parametrize(
    "fault", few_of(FAULTS, ("unreadable from then on", "no descriptors", "allocations from then on"))
)
def test_a_failing_call_of_the_core_is_reported_as_such_and_nothing_is_lost(
    core: Path, faults_library: Path, tiny_core_bundle: Path, state: Path, tmp_path: Path, fault: str
) -> None:
    before = outside.read(state, "SELECT id FROM examples ORDER BY key")

    def use(call: int, log: Path | None = None) -> dict[str, str] | None:
        model = CModel(core, tiny_core_bundle, state, environment(faults_library, fault, call, log))
        try:
            answer = model.act("open")
            answer = answer or model.act("validation_split")
            return answer if "error" in answer else None
        finally:
            model.__exit__(None, None, None)

    assert use(NEVER, tmp_path / "log") is None
    lines = (tmp_path / "log").read_text().splitlines()
    calls = int(lines[-1].split()[0]) if FAULTS[fault][0] == "memory" else len(lines)
    # Where one call fails, all are tried: what SQLite makes of it depends on which.
    most = calls if FAULTS[fault][:2] == ("read", FAIL) else min(calls, count(600))
    outcomes: Counter[str] = Counter()
    for call in sorted({round(part * (calls - 1) / max(1, most - 1)) for part in range(most)}):
        answer = use(call)
        outcomes["no harm" if answer is None else answer["error"]] += 1
        if answer is not None:
            judged(fault, answer["error"], f"{answer['got']}; {answer['expected']}. {answer['next_step']}")
    assert some_were_reported(outcomes)
    assert outside.read(state, "SELECT id FROM examples ORDER BY key") == before
    record_check(f"calls of the store that fail in the core ({fault})", dict(sorted(outcomes.items())))
