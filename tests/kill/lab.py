# SPDX-License-Identifier: Apache-2.0
"""A process that imports everything once and forks trainers to be killed; with faults.c preloaded, also at a chosen call.

Run as a program by the tests. A trainer trains a run to its end through PersonalModel; one that is forked later continues what
a killed one left. What a trainer knows it writes into memory that the lab shares: whether it is inside a commit. Prints one
JSON line per run; the tests judge.
"""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import bespoke.runtime.torch_runtime as training
from bespoke.bundle.reader import open_bundle
from bespoke.errors import StateError
from bespoke.personal_model import PersonalModel
from bespoke.runtime import graph_function, trainer
from bespoke.state.store import StateStore
from bespoke.system.guard import MemoryGuard
from tests.unit.personal_model.tiny import add_numbers
from tests.unit.state.crash_lab import KILL_AFTER, KILL_BEFORE, KILL_TORN, NEVER, faults, in_child

AIMED_EVERY = 4  # of the kills one in so many waits for a commit; the others come at any instant
SLOT_EVERY = 5  # steps between slots of a replayable method: several in a run that is this short

INSIDE, COMMITS = 0, 1  # places in the shared memory: 1 while a commit runs; how many have begun


class Aim:
    """Kill at the `call`-th change of a file in the `commit`-th commit of this process."""

    def __init__(self, commit: int, call: int, mode: int) -> None:
        self.commit, self.call, self.mode = commit, call, mode


def watch_commits(shared: mmap.mmap, aim: Aim | None) -> None:
    """From now on, in this process, commits are marked in `shared`, and the aim is taken."""
    for name in ("commit_step", "append_journal"):
        setattr(StateStore, name, _watched(getattr(StateStore, name), shared, aim))


def _watched(commit: Callable[..., bool], shared: mmap.mmap, aim: Aim | None) -> Callable[..., bool]:
    def watched(*arguments: Any, **named: Any) -> bool:
        shared[COMMITS] += 1
        aimed = aim is not None and shared[COMMITS] == aim.commit
        shared[INSIDE] = 1
        if aim is not None and aimed:
            faults().faults_arm(aim.call, aim.mode, 0)
        done = commit(*arguments, **named)
        if aimed:
            faults().faults_arm(-1, 0, 0)
        shared[INSIDE] = 0
        return done

    return watched


def watch_ends(record: Path) -> None:
    """Every call of `train` leaves a digest of adapter and optimizer state as the gate finds them."""
    judge = training.judge

    def watched(machine: Any, *arguments: Any, **named: Any) -> Any:
        with record.open("a") as lines:
            lines.write(digest(machine.state()) + "\n")
        return judge(machine, *arguments, **named)

    training.judge = watched


def digest(tensors: Mapping[str, Any]) -> str:
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode() + tensors[name].tobytes())
    return total.hexdigest()


def train(bundle: Path, folder: Path, method: str) -> None:
    """Starts the run, or continues it to its end; does nothing when it has ended."""
    with PersonalModel.open(bundle, folder) as model:
        if not has_ended(model):
            model.train(method=method)


def has_ended(model: PersonalModel) -> bool:
    """Whether the first run was begun and is over: another call of `train` would start a second."""
    try:
        return model._store.run(1).ended_because is not None
    except StateError:
        return False


def outcome(bundle: Path, folder: Path, record: Path) -> Any:
    """All that must not depend on where a run was killed."""
    with PersonalModel.open(bundle, folder) as model:
        run = model._store.run(1)
        versions = model._store.accepted()
        return {
            "ended": run.ended_because,
            "step": run.step,
            "cursor": run.cursor,
            "losses": [entry["loss"] for entry in model._store.metrics(1)],
            "journal": [[row.step, row.cursor, row.values, row.rejected] for row in model._store.journal(1)],
            "accepted": [[v.step, v.metrics, digest(model._store.load_version(v.id))] for v in versions],
            "state": sorted(set(record.read_text().split())),
            "files": sorted(path.suffix for path in folder.iterdir()),
        }


def undisturbed(bundle: Path, filled: Path, place: Path, method: str) -> dict[str, Any]:
    """How a run ends that nobody kills, how long it takes, and the calls of its longest commit."""
    folder, record = fresh(filled, place)

    def work() -> Any:
        logs = []
        began = time.monotonic()
        for name in ("commit_step", "append_journal"):
            commit = getattr(StateStore, name)

            def logged(*arguments: Any, commit: Any = commit, **named: Any) -> bool:
                faults().faults_arm(NEVER, KILL_BEFORE, 0)
                done: bool = commit(*arguments, **named)
                logs.append(faults().faults_log().decode().splitlines())
                faults().faults_arm(-1, 0, 0)
                return done

            setattr(StateStore, name, logged)
        watch_ends(record)
        train(bundle, folder, method)
        return {"seconds": time.monotonic() - began, "commits": len(logs), "calls": max(map(len, logs))}

    measured = valued(in_child(work))
    return {**measured, "outcome": valued(in_child(lambda: outcome(bundle, folder, record)))}


def valued(answer: tuple[Any, bool]) -> Any:
    value, killed = answer
    if killed or "error" in value:
        raise SystemExit(f"a child that nobody killed ended with {value}")
    return value["value"]


def fresh(filled: Path, place: Path) -> tuple[Path, Path]:
    folder, record = place / "state", place / "ends"
    shutil.rmtree(folder, ignore_errors=True)
    record.unlink(missing_ok=True)
    shutil.copytree(filled, folder)
    return folder, record


def one_run(
    bundle: Path, filled: Path, place: Path, method: str, expected: dict[str, Any], most: int, chance: random.Random, number: int
) -> int:
    """A run, killed again and again until it has ended or `most` kills are reached; the number of kills."""
    folder, record = fresh(filled, place)
    kills: list[dict[str, Any]] = []
    while True:
        aim, after = None, None
        if len(kills) < most:
            if (number + len(kills)) % AIMED_EVERY == 0:
                mode = chance.choice((KILL_BEFORE, KILL_AFTER, KILL_TORN))
                aim = Aim(chance.randint(1, max(1, expected["commits"] // 2)), chance.randrange(expected["calls"]), mode)
            else:
                after = chance.uniform(0, expected["seconds"])
        killed, inside = trained_and_killed(bundle, folder, record, method, aim, after)
        if not killed:
            break
        kills.append({"inside": inside, "aimed": aim is not None})
    answer = valued(in_child(lambda: outcome(bundle, folder, record)))
    print(json.dumps({"kind": "run", "method": method, "kills": kills, "outcome": answer}), flush=True)
    return len(kills)


def trained_and_killed(
    bundle: Path, folder: Path, record: Path, method: str, aim: Aim | None, after: float | None
) -> tuple[bool, bool]:
    """Forks a trainer and kills it `after` seconds, or lets it take its aim. Whether it died of that, whether inside a commit."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            watch_commits(shared, aim)
            watch_ends(record)
            train(bundle, folder, method)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)  # the child's end closes when it is gone
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    os.read(reading, 1)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise SystemExit(f"a trainer ended with status {status}, its error is above")
    return os.WIFSIGNALED(status), bool(shared[INSIDE])


def main(arguments: list[str]) -> None:
    bundle, place, counts, seed = Path(arguments[0]), Path(arguments[1]), json.loads(arguments[2]), int(arguments[3])
    torch.set_num_threads(1)
    trainer.SLOT_EVERY = SLOT_EVERY
    # Trainers inherit what `warm` has read.
    graph_function.load_program = functools.lru_cache(maxsize=None)(graph_function.load_program)
    filled = place / "filled"

    def fill() -> None:
        with PersonalModel.open(bundle, filled) as model:
            add_numbers(model)

    valued(in_child(fill))
    chance = random.Random(seed)
    for method, count in counts.items():
        warm(bundle, method)
        expected = undisturbed(bundle, filled, place, method)
        print(json.dumps({"kind": "expected", "method": method, **expected}), flush=True)
        kills = 0
        while kills < count:
            kills += one_run(bundle, filled, place, method, expected, count - kills, chance, kills)


def warm(bundle: Path, method: str) -> None:
    """What a trainer imports only when it needs it is imported here, once for all of them."""
    with open_bundle(bundle) as opened:
        training.Machine(opened, training.method_of(opened, method), MemoryGuard(None, 0))


if __name__ == "__main__":
    main(sys.argv[1:])
