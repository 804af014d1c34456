# SPDX-License-Identifier: Apache-2.0
"""`bespoke-core train` in the hands of a test: a tiny bundle, a state with a run to be trained, processes, how a run ended."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from tests.support.bundles import CORE_JOURNALED as JOURNALED
from tests.support.bundles import CORE_METHODS as METHODS
from tests.support.bundles import CORE_STEPS as STEPS
from tests.support.bundles import tiny_core_bundle
from tests.support.faults_library import compile_faults
from tests.support.faulty import NEVER
from tests.support.reading import newest_run, read_state, select_all
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["JOURNALED", "METHODS", "tiny_core_bundle"]

PAUSE = 12  # the run pauses after so many of STEPS, so that a test can look at adapter and optimizer state


@pytest.fixture(scope="session")
def faults_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_faults(tmp_path_factory.mktemp("faults"))


@dataclass(frozen=True)
class Ended:
    """How a process of the core ended: its exit code (-9: killed), and what it said."""

    code: int
    events: list[dict[str, Any]]

    @property
    def report(self) -> dict[str, Any]:
        assert self.events, self
        assert self.events[-1]["event"] == "report", self.events[-1]
        report: dict[str, Any] = self.events[-1]["report"]
        return report

    @property
    def error(self) -> dict[str, Any] | None:
        return self.events[-1] if self.events and self.events[-1]["event"] == "error" else None


class Core:
    """The program, and a bundle to train."""

    def __init__(self, program: Path, bundle: Path, faults: Path | None = None) -> None:
        self.program, self.bundle, self.faults = program, bundle, faults

    def train(
        self,
        state: Path,
        *,
        run_steps: int = 0,
        most_steps: int = 0,
        kill_after: float | None = None,
        after_step: int = 0,
        fault: tuple[int, int, int] | None = None,
        log: Path | None = None,
        threads: int = 1,
        limit_mb: float | None = None,
        engine: str | None = None,
        verb: str = "train",
    ) -> Ended:
        """One process, of `train` or of another verb that computes.

        It is killed so many seconds after its start, or after it said that a step was done, which it then commits.

        `fault`: (call, mode, error number) as in faults.c. `log`: where the calls that change a file are listed.
        `limit_mb`: of addresses that may be written to. `engine`: another one than the core's own.
        """
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if fault is not None or log is not None:
            assert self.faults is not None
            call, mode, error = fault or (NEVER, 0, 0)
            environment |= {"LD_PRELOAD": str(self.faults), "FAULTS_ARM": f"{call}:{mode}:{error}"}
            environment |= {} if log is None else {"FAULTS_LOG": str(log)}
        wanted = {"verb": verb, "bundle": str(self.bundle), "state": str(state), "threads": threads, "memory_mb": -1}
        wanted |= {"run_steps": run_steps, "most_steps": most_steps, "engine": engine}

        def limited() -> None:
            assert limit_mb is not None
            resource.setrlimit(resource.RLIMIT_DATA, (int(limit_mb * 1e6), int(limit_mb * 1e6)))

        process = subprocess.Popen(
            [self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=None if limit_mb is None else limited,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(wanted))
        process.stdin.close()
        said, steps_done = "", 0
        while steps_done < after_step and (line := process.stdout.readline()):
            said += line
            steps_done += json.loads(line).get("phase") == "step"
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        said += process.stdout.read()
        process.stdout.close()
        process.wait()
        lines = said.splitlines() if said.endswith("\n") else said.splitlines()[:-1]  # killed in the middle of one
        return Ended(process.returncode, [json.loads(line) for line in lines])


RUN = "SELECT step, cursor, ended_because FROM runs WHERE id = 1"
LOSSES = (
    "SELECT json_extract(m, '$.loss') FROM (SELECT metrics AS m, step AS s, 0 AS n FROM journal WHERE run = 1 "
    "UNION ALL SELECT json, step, id FROM metrics WHERE run = 1) ORDER BY s, n"
)
JOURNAL = "SELECT step, cursor, recorded, rejected FROM journal WHERE run = 1 ORDER BY step"
SLOT = "SELECT step, cursor, sha256 FROM slots WHERE run = 1 ORDER BY id DESC LIMIT 1"
VERSION = "SELECT step, json_extract(metrics, '$.validation_loss'), sha256 FROM versions ORDER BY id DESC LIMIT 1"


class States:
    """States of one bundle with a run that has made no step, and what is in them, read without any code of bespoke."""

    def __init__(self, bundle: Path, place: Path, method: str) -> None:
        self.bundle = bundle
        self.filled = place / f"filled-{method}"
        with PersonalModel.open(bundle, self.filled, engine="executorch") as model:
            add_numbers(model)
            assert model.train(seconds=1e-9, method=method).total_steps == 0

    def fresh(self, folder: Path) -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.filled, folder)
        return folder

    def step(self, folder: Path) -> int:
        return int(newest_run(folder)["step"])

    def has_ended(self, folder: Path) -> bool:
        """Then another process would begin a second run."""
        return newest_run(folder)["ended_because"] is not None

    def at_pause(self, folder: Path) -> Any:
        """All that must not depend on where a run was killed, optimizer state included; before its last step."""
        self._left(folder)
        ((run,), losses, journal, slots) = select_all(folder, RUN, LOSSES, JOURNAL, SLOT)
        return {
            "step": run[0],
            "cursor": run[1],
            "losses": losses,
            "journal": journal,
            "slot": slots[0] if slots else None,
        }

    def at_end(self, folder: Path) -> Any:
        """What the next open would remove is left out."""
        left = self._left(folder)
        ((run,), losses, journal, versions) = select_all(folder, RUN, LOSSES, JOURNAL, VERSION)
        files = {path.name for path in folder.iterdir()} - {*left, "state.sqlite-shm", "state.sqlite-wal", "hashes"}
        return {
            "ended": run[2],
            "step": run[0],
            "cursor": run[1],
            "losses": losses,
            "journal": journal,
            "accepted": versions[0] if versions else None,
            "files": sorted({name.split("_")[0] for name in files}),
        }

    def _left(self, folder: Path) -> set[str]:
        """Every promise of the format holds; the files that a killed process left."""
        found = read_state(folder, self.bundle)
        assert found["broken"] == []
        return set(found["left"])


@dataclass(frozen=True)
class Undisturbed:
    """How a run ends that nobody kills; how long each of its two processes takes and which calls change a file."""

    pause: Any
    end: Any
    seconds: tuple[float, float]
    calls: tuple[list[str], list[str]]


def undisturbed(core: Core, states: States, place: Path) -> Undisturbed:
    folder = states.fresh(place / "undisturbed")
    seconds, calls, pause = [], [], None
    for steps in (PAUSE, 0):
        log = place / "calls"
        began = time.monotonic()
        ended = core.train(folder, most_steps=steps, log=log)
        seconds.append(time.monotonic() - began)
        assert ended.code == 0, ended.error
        calls.append(log.read_text().splitlines())
        pause = pause or states.at_pause(folder)
    return Undisturbed(pause, states.at_end(folder), (seconds[0], seconds[1]), (calls[0], calls[1]))


def a_kill(expected: Undisturbed, phase: int, chance: random.Random, modes: list[int]) -> dict[str, Any]:
    """How to kill a process of one phase: at any instant, while it steps and commits, or at a call that changes a file."""
    kind = chance.randrange(3)
    if kind == 0:
        return {"kill_after": chance.uniform(0, expected.seconds[phase])}
    if kind == 1:
        return {
            "kill_after": chance.uniform(0, 0.003),
            "after_step": chance.randint(1, PAUSE - 1 if phase == 0 else STEPS - PAUSE),
        }
    return {"fault": (chance.randrange(len(expected.calls[phase])), chance.choice(modes), 0)}
