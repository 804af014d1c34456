# SPDX-License-Identifier: Apache-2.0
"""A process that forks others which open a state and die, at random or (with faults.c preloaded) at a chosen call.

Run as a program by the tests, so that no test runner is forked. A child opens its own store: connections do not cross
a fork. Prints one JSON line per trial; the tests judge.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke.errors import BespokeError
from bespoke.state import JournalRow, StateStore

from .states import adapter, add, digest, open_state, slot_tensors, summary

KILL_BEFORE, KILL_AFTER, KILL_TORN, FAIL, FAIL_FROM = range(5)
NEVER = 10**9


def commit(store: StateStore) -> Any:
    run = store.current_run()
    assert run is not None
    step = run.step + 1
    return store.commit_step(
        run.id, step=step, cursor={"row": step}, tensors=slot_tensors(100 + step), metrics=[{"step": step}]
    )


def journal(store: StateStore) -> Any:
    run = store.current_run()
    assert run is not None
    return store.append_journal(run.id, [JournalRow(run.step + n, {"row": run.step + n}, [0.5]) for n in (1, 2, 3)])


def accept(store: StateStore) -> Any:
    run = store.current_run()
    assert run is not None
    return store.accept(run.id, adapter(77), {"validation_loss": 1.0})


OPERATIONS: dict[str, Callable[[StateStore], Any]] = {
    "commit": commit,
    "journal": journal,
    "accept": accept,
    "add": lambda store: add(store, "one more thing", id="more"),
    "forget": lambda store: store.forget("note-2").example,
    "rollback": lambda store: store.rollback() is None,
    "end": lambda store: store.end_run(store.current_run().id, "finished"),  # type: ignore[union-attr]
    "reset": lambda store: store.reset(),
}


def in_child(work: Callable[[], Any]) -> tuple[Any, bool]:
    """What `work` returned in a forked process, as JSON says it; whether it was killed before."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = {"value": work()}
        except BespokeError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        except BaseException as error:
            answer = {"error": f"unexpected {type(error).__name__}", "text": repr(error)}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return (json.loads(text) if text else None), os.WIFSIGNALED(status)


def faults() -> Any:
    library = ctypes.CDLL(None)
    library.faults_arm.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_int]
    library.faults_count.restype = ctypes.c_long
    library.faults_log.restype = ctypes.c_char_p
    return library


def summarize(folder: Path) -> Any:
    with open_state(folder) as store:
        return json.loads(json.dumps(summary(store)))


def work_and_log(folder: Path, operation: str) -> list[str]:
    """The calls that change a file during an undisturbed operation."""
    library = faults()
    if operation == "create":
        library.faults_arm(NEVER, KILL_BEFORE, 0)
        open_state(folder).close()
    else:
        with open_state(folder) as store:
            library.faults_arm(NEVER, KILL_BEFORE, 0)
            OPERATIONS[operation](store)
            return library.faults_log().decode().splitlines()
    return library.faults_log().decode().splitlines()


def at_every_call(filled: Path, place: Path, operation: str, modes: list[int], error: int, every: int) -> None:
    """For every n-th call of the operation, in each mode: a fresh copy, the fault, then what a new process finds."""
    folder = place / "state"

    def fresh() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if operation != "create":
            shutil.copytree(filled, folder)

    def attempt(k: int, mode: int) -> Any:
        library = faults()
        if operation == "create":
            library.faults_arm(k, mode, error)
            open_state(folder).close()
            return None
        store = open_state(folder)
        library.faults_arm(k, mode, error)
        outcome: Any = None
        try:
            OPERATIONS[operation](store)
        except BespokeError as problem:
            outcome = {"error": type(problem).__name__, "text": str(problem)}
        library.faults_arm(-1, 0, 0)
        alive = summary(store)
        return {"outcome": outcome, "alive": alive}

    fresh()
    log = in_child(lambda: work_and_log(folder, operation))[0]["value"]
    after, _ = in_child(lambda: summarize(folder))
    fresh()
    before, _ = in_child(lambda: summarize(folder))
    report("expected", before=before, after=after, log=log)
    for k in range(0, len(log), every):
        for mode in modes:
            fresh()
            answer, killed = in_child(lambda k=k, mode=mode: attempt(k, mode))
            found, _ = in_child(lambda: summarize(folder))
            again, _ = in_child(lambda: again_and_look(folder, operation))
            left = sorted(path.name for path in folder.iterdir())
            report("trial", k=k, mode=mode, answer=answer, killed=killed, found=found, again=again, left=left)


def again_and_look(folder: Path, operation: str) -> Any:
    """After the fault is gone, the next commit works."""
    with open_state(folder) as store:
        if operation == "forget":
            store.forget("note-2")
            return b"the 2. thing" in b"".join(path.read_bytes() for path in folder.iterdir())
        run = store.current_run() or store.start_run("mesp", 1, {}, store.example_ids(), 9)
        return store.commit_step(run.id, step=run.step + 1, cursor={}, tensors=slot_tensors(1))


def at_random(folder: Path, trials: int, seed: int) -> None:
    """Kill a child that commits in a loop; a later one continues with what it finds."""
    chance = random.Random(seed)
    for trial in range(trials):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with open_state(folder) as store:
                os.write(writing, b"ready\n")
                while True:
                    commit(store)
                    run = store.current_run()
                    assert run is not None
                    os.write(writing, f"{run.step}\n".encode())
        os.close(writing)
        with os.fdopen(reading) as pipe:
            pipe.readline()
            started = time.monotonic()
            reported = [pipe.readline() for _ in range(1 + trial % 3)]
            commit_seconds = (time.monotonic() - started) / len(reported)
            time.sleep(chance.uniform(0, 1.5 * commit_seconds))
            os.kill(child, signal.SIGKILL)
            reported += pipe.read().split()
        os.waitpid(child, 0)

        def look() -> Any:
            with open_state(folder) as store:
                run = store.current_run()
                assert run is not None
                slot = store.latest_slot(run.id)
                assert slot is not None
                good = digest(slot.tensors) == digest(slot_tensors(100 + slot.step))
                files = len(list(folder.glob("slot_*")))
                last = store.metrics(run.id)[-1]["step"]
                return [run.step, slot.step, slot.cursor["row"], last, good, files]

        found, _ = in_child(look)
        report("trial", trial=trial, last_reported=int(reported[-1]), commits=len(reported), found=found)


def with_small_files(folder: Path, limits: list[int]) -> None:
    """Commits under RLIMIT_FSIZE, which fails writes as a quota does."""

    def attempt(limit: int) -> Any:
        with open_state(folder) as store:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                commit(store)
                outcome = None
            except BespokeError as problem:
                outcome = {"error": type(problem).__name__, "text": str(problem)}
            alive = summary(store)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return {"outcome": outcome, "alive": alive, "again": commit(store)}

    for limit in limits:
        before, _ = in_child(lambda: summarize(folder))
        answer, _ = in_child(lambda limit=limit: attempt(limit))
        report("trial", limit=limit, before=before, answer=answer)


def report(kind: str, **values: Any) -> None:
    print(json.dumps({"kind": kind, **values}), flush=True)


def main(arguments: list[str]) -> None:
    what, *rest = arguments
    if what == "at_every_call":
        filled, place, operation, modes, error, every = rest
        number = getattr(errno, error) if error else 0
        at_every_call(Path(filled), Path(place), operation, json.loads(modes), number, int(every))
    elif what == "at_random":
        at_random(Path(rest[0]), int(rest[1]), int(rest[2]))
    elif what == "with_small_files":
        with_small_files(Path(rest[0]), json.loads(rest[1]))
    elif what == "add_many":
        with open_state(Path(rest[0])) as store:
            for number in range(int(rest[1])):
                add(store, f"added meanwhile {number}")
        report("done")
    elif what == "hold_trainer_lock":
        with open_state(Path(rest[0])) as store, store.trainer_lock("a long training"):
            report("held", pid=os.getpid())
            time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1:])
