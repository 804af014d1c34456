# SPDX-License-Identifier: Apache-2.0
"""SIGTERM at 100 random instants of a run of Qwen2.5-0.5B: how long until the process has ended in a committed state.

All trials continue one run, each in a process of its own. An instant is drawn from the time that opening, the gate's first look and
two steps take, so that some fall into each of them. Needs a machine that does nothing else.

BESPOKE_BENCHMARK_TRIALS=5 tries it with fewer, and then writes nothing.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.core_bundles import Bundle, Wanted, first_that_fits
from tests.benchmarks.core_process import (
    EVERY_STEP,
    NO_LIMIT,
    THREADS,
    CoreRun,
    ask,
    core_path,
    events,
    fresh_state,
    take,
    warm,
)
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.support.reading import select

MODEL, LENGTH = "Qwen2.5-0.5B", 256
TRIALS = int(os.environ.get("BESPOKE_BENCHMARK_TRIALS", "100"))
STEPS_OF_THE_RUN = 100_000  # never finished
HEADER = ("stopped while", "stops", "median, ms", "worst, ms")


@pytest.mark.benchmark
def test_stops_at_random_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    made = first_that_fits(Wanted(MODEL, "mesp", LENGTH, None), 45, 64)
    warm(made)
    drawn = random.Random(0)
    taken: dict[str, list[float]] = {"opening or the first evaluation": [], "a step or its commit": []}
    longest: dict[str, float] = {}
    done = 0
    with fresh_state(made, "stop") as state:
        whole = until_step(made, state, 2)
        done = committed(state)
        span = whole.steps[1][0]
        for trial in range(TRIALS):
            run, seconds = stopped_after(made, state, drawn.uniform(0, span))
            assert run.code == 0, f"trial {trial}: the core ended with {run.code}: {run.error}"
            assert run.report["stopped_because"] == "stop_requested", run.report
            assert committed(state) == run.report["total_steps"] == done + len(run.steps), f"trial {trial}"
            done = run.report["total_steps"]
            taken[list(taken)[run.report["validation_loss_before"] is not None]].append(seconds)
            for name in ("longest_instruction_seconds", "longest_commit_seconds"):
                longest[name] = max(longest.get(name, 0.0), run.report.get(name) or 0.0)
            print(f"trial {trial}: {seconds * 1e3:.0f} ms, step {done}", flush=True)
    everything = [seconds for group in taken.values() for seconds in group]
    rows: list[list[Cell]] = [
        [name, len(group), *(round(value * 1e3) for value in (statistics.median(group), max(group)))]
        for name, group in [*taken.items(), ("anything", everything)]
        if group
    ]
    if TRIALS != 100:
        monkeypatch.setenv("BESPOKE_FIGURES", "print")
    write_table(
        "core_stop",
        HEADER,
        rows,
        f"{MODEL}, `mesp`, sequence {LENGTH}, built for {made.wanted.memory_mb:g} MB, {THREADS} threads: from SIGTERM to the end "
        "of the process, whose state is then committed; the run went on in the next process, "
        f"{done} steps in all.{as_reported(longest)}",
        machine=this_machine(THREADS),
    )
    assert len(everything) == TRIALS


def as_reported(longest: dict[str, float]) -> str:
    """The longest instruction and commit of the reports, to compare the times with."""
    instruction, commit = longest["longest_instruction_seconds"] * 1e3, longest["longest_commit_seconds"] * 1e3
    return (
        f" The longest instruction took {instruction:.0f} ms, the longest commit {commit:.0f} ms."
        if instruction
        else ""
    )


def request(made: Bundle, state: Path, *, first: bool) -> dict[str, Any]:
    given = (
        {"run_steps": STEPS_OF_THE_RUN, "settings": EVERY_STEP} if first else {}
    )  # an unfinished run keeps its settings
    return {
        "verb": "train",
        "bundle": str(made.path),
        "state": str(state),
        "method": "mesp",
        "threads": THREADS,
        "memory_mb": NO_LIMIT,
        **given,
    }


def until_step(made: Bundle, state: Path, step: int) -> CoreRun:
    """Begins the run, and stops it when it has reported this step."""
    process, run, began = *started(request(made, state, first=True)), time.monotonic()
    for event in events(process):
        take(run, event, time.monotonic() - began)
        if len(run.steps) == step and not run.report:
            process.send_signal(signal.SIGTERM)
    run.code = process.wait()
    assert run.code == 0, run.error
    return run


def stopped_after(made: Bundle, state: Path, seconds: float) -> tuple[CoreRun, float]:
    """Continues the run, and sends SIGTERM after so many seconds. What it did, and the seconds from the signal to its end."""
    process, run = started(request(made, state, first=False))
    time.sleep(seconds)
    began = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    run.code = process.wait()  # it tells a few hundred bytes a step, which the pipe holds
    taken = time.perf_counter() - began
    for event in events(process):
        take(run, event, 0.0)
    return run, taken


def started(asked: dict[str, Any]) -> tuple[subprocess.Popen[bytes], CoreRun]:
    process = subprocess.Popen([core_path()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ask(process, asked)
    return process, CoreRun(code=-1)


def committed(state: Path) -> int:
    """Steps in the last committed state, as tests/state_reader reads it."""
    slots = select(state, "SELECT step FROM slots WHERE run = (SELECT max(id) FROM runs) ORDER BY id DESC LIMIT 1")
    return int(slots[0][0]) if slots else 0
