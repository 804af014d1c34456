# SPDX-License-Identifier: Apache-2.0
"""Slices of a minute of a run of Qwen2.5-0.5B: how much of each goes into steps, and where the rest goes.

Each slice is a process of its own with a deadline, as a background task of a phone is; the last one ends the run and begins the
gate. Two rules are held: outside of steps and of the judgements that choose the best step a slice spends little, and those
judgements take little of the run, whichever slice they fall into. Needs a machine that does nothing else.

BESPOKE_BENCHMARK_SECONDS=10 tries it with shorter slices, and then writes nothing.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from dataclasses import dataclass
from typing import Any

import pytest
from tests.benchmarks.core_bundles import Wanted, bundle
from tests.benchmarks.core_process import THREADS, ask, core_path, events, fresh_state, warm
from tests.benchmarks.figures import Cell, this_machine, write_table

SECONDS = float(os.environ.get("BESPOKE_BENCHMARK_SECONDS", "60"))
STEPS, DEFAULT_STEPS = 60, 300
EXAMPLES = 40  # the user's examples; one in ten is held out
GENERAL_ROWS = 16
MOST_OUTSIDE = 0.05
MOST_JUDGING = 0.05  # share of the work of a run's steps, as the core plans it
MOST_SLICES = 30
HEADER = ("slice", "seconds", "steps", "in steps", "judgements", "opening", "commits", "gate", "ending", "outside both")


@dataclass
class Slice:
    """Seconds, seen from the process that started it: `parts` add up to `seconds`."""

    seconds: float
    steps: int
    parts: dict[str, float]
    report: dict[str, Any]

    @property
    def outside(self) -> float:
        """Share of the time outside steps and judgements."""
        return 1 - (self.parts["in steps"] + self.parts["judgements"]) / self.seconds


@pytest.mark.benchmark
def test_a_slice_is_spent_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bundle(Wanted("Qwen2.5-0.5B", "mesp", 256, 64, general_rows=GENERAL_ROWS))
    warm(made)
    slices: list[Slice] = []
    with fresh_state(made, "slices", EXAMPLES) as state:
        request = {
            "verb": "train",
            "bundle": str(made.path),
            "state": str(state),
            "method": "mesp",
            "threads": THREADS,
            "deadline_seconds": SECONDS,
        }
        while not slices or slices[-1].report["accepted"] is None:
            assert len(slices) < MOST_SLICES, slices
            given = {} if slices else {"seed": 0, "run_steps": STEPS}
            slices.append(one_slice({**request, **given}, STEPS - sum(one.steps for one in slices)))
            print(len(slices), slices[-1], flush=True)
    rows: list[list[Cell]] = [
        [number, one.seconds, one.steps, *one.parts.values(), f"{one.outside:.1%}"]
        for number, one in enumerate(slices, 1)
    ]
    step = sum(one.parts["in steps"] for one in slices) / STEPS
    gate, judging = (sum(one.parts[part] for one in slices) for part in ("gate", "judgements"))
    if SECONDS != 60:
        monkeypatch.setenv("BESPOKE_FIGURES", "print")
    write_table(
        "slices",
        HEADER,
        rows,
        f"Seconds of each slice. Qwen2.5-0.5B with random weights, `mesp`, rows of 256 tokens, built for 64 MB, {THREADS} threads; "
        f"a run of {STEPS} steps in slices of {SECONDS:g} s, a process each, the bundle in the system's file cache. Judgements on "
        f"the way took {judging / (STEPS * step):.1%} of the seconds in steps. The gate, with the last of them, reads "
        f"{EXAMPLES // 10} held-out rows and the bundle's {GENERAL_ROWS}, each with both adapters: {gate:.0f} s, the time of "
        f"{gate / step:.0f} steps, and {gate / (DEFAULT_STEPS * step + gate):.1%} of a run of {DEFAULT_STEPS} steps. What the "
        "adapter that answers is worth is remembered, so the gate of a later run takes half.",
        machine=this_machine(THREADS),
    )
    done = itertools.accumulate(one.steps for one in slices)
    trained_only = [one for one, steps in zip(slices, done, strict=True) if steps < STEPS][1:]
    assert trained_only
    assert judging <= MOST_JUDGING * STEPS * step
    assert all(one.outside <= MOST_OUTSIDE for one in trained_only), [one.outside for one in trained_only]


def one_slice(request: dict[str, Any], left: int) -> Slice:
    """Runs it to its end. An event is told as its phase begins, that of a step as it ends. What is judged before the last of the
    steps that are `left` is judged to choose the best one."""
    began = time.monotonic()
    process = subprocess.Popen([core_path()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ask(process, request)
    moments: list[tuple[str, float]] = []
    report: dict[str, Any] = {}
    for event in events(process):
        moments.append((event.get("phase", event["event"]), time.monotonic() - began))
        report = event.get("report", report)
    assert process.wait() == 0, report
    seconds = time.monotonic() - began
    taken = iter(report["step_seconds"])
    parts = dict.fromkeys(HEADER[4:-1], 0.0)
    phase, since = "opening", 0.0
    for name, moment in [*moments, ("end", seconds)]:
        parts[phase] += moment - since - (next(taken) if name == "step" else 0.0)
        left -= name == "step"
        # Between two steps without a commit there is only the choice of the next batch.
        judged = "judgements" if left else "gate"
        phase = {"step": "commits", "commit": "commits", "judge": judged, "report": "ending"}.get(name, phase)
        since = moment
    return Slice(seconds, len(report["step_seconds"]), {"in steps": sum(report["step_seconds"]), **parts}, report)
