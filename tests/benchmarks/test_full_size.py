# SPDX-License-Identifier: Apache-2.0
"""Qwen2.5-0.5B at sequence 256: building, steps of `mesp` and the same steps of peft, each in a fresh process.

Both train every linear at rank 8 with AdamW on one row of 256 unmasked tokens. peft runs in fp32 with gradient checkpointing;
its figure is that of its steps alone, ours has opening, tokens and the gate in it.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.footprint import Watched, watch
from tests.benchmarks.overview import write_overview
from tests.benchmarks.qwen import CACHE, build, model_folder, train

LENGTH, RANK, ALPHA, LEARNING_RATE = 256, 8, 16.0, 2e-4
STEPS = max(5, int(os.environ.get("BESPOKE_BENCHMARK_STEPS", "5")))
FEWER_STEPS = 2  # where only the budget differs
LEAST_RATIO = 10
HEADER = (
    "Qwen2.5-0.5B, sequence 256, batch 1, rank 8, AdamW",
    "memory over idle, MB",
    "estimate, MB",
    "idle process, MB",
    "seconds a step",
)


@pytest.mark.benchmark
def test_steps_of_mesp_compared_with_peft() -> None:
    model = model_folder()
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        built = build(model, Path(folder) / "full.bundle", ["mesp"], LENGTH)
        ours = train(Path(folder) / "full.bundle", Path(folder) / "state", LENGTH, STEPS)
    same = {"sequence_length": LENGTH, "steps": STEPS, "rank": RANK, "alpha": ALPHA, "learning_rate": LEARNING_RATE}
    peft = watch("tests.benchmarks.peft_step", {"model": str(model), **same})
    ratio = peft.added("steps") / ours.added()
    rows = [
        _row("bespoke `mesp`", ours, ours.added()),
        _row("transformers + peft, fp32, gradient checkpointing", peft, peft.added("steps")),
    ]
    write_table(
        "full_size",
        HEADER,
        rows,
        f"Random weights in the published configuration; {STEPS} steps of each, the seconds are medians (processor time: "
        f"{ours.report['cpu_seconds_a_step']:.1f} and {peft.report['cpu_seconds_a_step']:.1f} s a step). peft takes {ratio:.1f} "
        f"times as much memory as bespoke. Building the bundle: {built.seconds['build']:.0f} s, "
        f"{built.report['cpu_seconds']:.0f} s of processor time, peak {built.peaks['build'] / 1e6:.0f} MB of anonymous memory, all "
        f"imports included.{busy()}",
    )
    write_overview()
    assert len(ours.report["losses"]) == len(peft.report["losses"]) == STEPS >= 5
    assert ours.report["trained"] == peft.report["trained"]
    assert ratio >= LEAST_RATIO
    assert built.peaks["build"] < 2e9


@pytest.mark.benchmark
def test_the_smallest_budget() -> None:
    model = model_folder()
    smallest = smallest_budget_mb(model)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        build(model, Path(folder) / "small.bundle", ["mesp"], LENGTH, memory_mb=smallest)
        small = train(Path(folder) / "small.bundle", Path(folder) / "state", LENGTH, FEWER_STEPS)
    row = _row(f"bespoke `mesp`, built for {smallest} MB, the least it can do with", small, small.added())
    write_table(
        "smallest_budget",
        HEADER,
        [row],
        f"{small.report['memory']['mapped_dirty_bytes'] / 1e6:.0f} MB of the mapped scratch file were dirty at the end; "
        f"{small.report['cpu_seconds_a_step']:.1f} s of processor time a step.{busy()}",
    )


def busy() -> str:
    """A word of warning about the seconds, where more runs than there are cores."""
    load = os.getloadavg()[0]
    others = load > (os.cpu_count() or 1) + 1
    return f" Other processes were using the machine's cores meanwhile (load average {load:.0f})." if others else ""


def smallest_budget_mb(model: Path) -> float:
    """What the SDK itself says is the least that this model can be trained with."""
    from bespoke import Budget, Personalizer, Training
    from bespoke.errors import PlanDoesNotFit

    training = Training(sequence_lengths=(LENGTH,))
    personalizer = Personalizer(model, "mesp", "torch", context=LENGTH, training=training, budget=Budget(memory_mb=1))
    with pytest.raises(PlanDoesNotFit) as refused:
        personalizer.estimate()
    found = re.search(r"memory_mb=([0-9.]+)", refused.value.next_step)
    assert found is not None
    return float(found[1])


def _row(name: str, run: Watched, added: int) -> list[Cell]:
    estimate = f"{run.report['memory']['estimate_bytes'] / 1e6:.1f}" if "memory" in run.report else None
    seconds = f"{statistics.median(run.report['step_seconds']):.1f}"
    return [name, f"{added / 1e6:.1f}", estimate, f"{run.idle_bytes / 1e6:.0f}", seconds]
