# SPDX-License-Identifier: Apache-2.0
"""The dial: what a budget buys. Qwen2.5-0.5B built for 64 to 512 MB: the peak that is reached, seconds a step, and peft's.

Peaks come from a run each, watched every millisecond; seconds from steps in turns, all budgets and peft in one round. Needs a
machine that does nothing else.
"""

from __future__ import annotations

import os
import statistics

import pytest
from tests.benchmarks.core_bundles import Bundle
from tests.benchmarks.core_process import THREADS, fresh_state, train
from tests.benchmarks.dial_bundles import BUDGETS_MB, bundles_that_fit
from tests.benchmarks.figures import this_machine, write_table, write_text
from tests.benchmarks.paced import paired_ratio
from tests.benchmarks.speed_cases import CASES
from tests.benchmarks.step_turns import LENGTH, PEFT, PEFT_BF16, ROUNDS, steps_in_turns
from tests.conftest import REPOSITORY

STEPS = 3
AT_MOST = 0.65  # times peft, at the largest budget
PICTURE = REPOSITORY / "docs" / "explanation" / "images" / "qwen2.5-0.5b_dial.svg"
HEADER = (
    "built for, MB",
    "peak, MB",
    "estimate, MB",
    "seconds a step",
    "times peft in fp32",
    "tiles and choices",
)


@pytest.mark.benchmark
def test_what_a_budget_buys() -> None:
    case = CASES[0]
    bundles, rows = bundles_that_fit()
    peaks = {budget: peak_bytes(made) for budget, made in bundles.items()}
    seconds, _ = steps_in_turns(case.model, {f"core, {budget:g} MB": made for budget, made in bundles.items()})
    times: dict[float, tuple[float, float]] = {}
    for budget, made in bundles.items():
        taken = seconds[f"core, {budget:g} MB"]
        times[budget] = statistics.median(taken), paired_ratio(taken, seconds[PEFT])
        estimate = made.plan["estimate"]["peak_bytes"]
        rows[budget] = [budget, f"{peaks[budget] / 1e6:.1f}", f"{estimate / 1e6:.1f}", *times[budget], made.choices]
    peft = statistics.median(seconds[PEFT])
    bf16 = f"; in bf16 {statistics.median(seconds[PEFT_BF16]):.3g} s" if PEFT_BF16 in seconds else ""
    write_table(
        "core_dial",
        HEADER,
        [rows[budget] for budget in BUDGETS_MB],
        f"{case.model}, `mesp`, sequence {LENGTH}, batch 1, rank 8, SGD; medians of {ROUNDS} rounds, {THREADS} threads. torch + "
        f"peft with gradient checkpointing in fp32 takes {peft:.3g} s a step in the same rounds{bf16}.",
        machine=this_machine(THREADS),
    )
    if os.environ.get("BESPOKE_FIGURES") != "print":
        write_text("core_dial_picture", f"![Seconds a step over peak memory](images/{PICTURE.name})")
        draw([(peaks[budget] / 1e6, times[budget][0]) for budget in bundles], list(bundles), peft)
    over = {budget: peaks[budget] / 1e6 for budget in bundles if peaks[budget] > budget * 1e6}
    assert not over, f"peaks over the budget: {over}"
    assert times[BUDGETS_MB[-1]][1] <= AT_MOST, times


def peak_bytes(made: Bundle) -> int:
    with fresh_state(made, "dial") as state:
        return train(made, state, STEPS).peak_bytes


def draw(points: list[tuple[float, float]], budgets: list[float], peft_seconds: float) -> None:
    """Seconds a step over peak memory. The same figures give the same bytes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    with pyplot.rc_context({"svg.hashsalt": "bespoke", "svg.fonttype": "none", "font.size": 10}):
        figure, axes = pyplot.subplots(figsize=(7, 4))
        axes.plot(*zip(*points, strict=True), marker="o", color="#1f6feb", label="device core, mesp")
        for (peak, seconds), budget in zip(points, budgets, strict=True):
            axes.annotate(f"{budget:g}", (peak, seconds), textcoords="offset points", xytext=(4, 6))
        axes.axhline(peft_seconds, linestyle="--", color="#6e7781", label="torch + peft, fp32, checkpointing")
        axes.set(xlabel="peak memory of the whole process, MB (labels: budget)", ylabel="seconds a step")
        axes.set(xlim=(0, None), ylim=(0, None))
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(PICTURE, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
