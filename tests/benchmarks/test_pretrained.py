# SPDX-License-Identifier: Apache-2.0
"""Memory and speed of training the pretrained model of the demo, against torch + peft, in turns.

The other tables of training have larger models, with random weights. Needs a machine that does nothing else.
"""

from __future__ import annotations

import statistics

import pytest
from tests.benchmarks.core_bundles import PRETRAINED, Wanted, bundle
from tests.benchmarks.core_process import THREADS, fresh_state, train
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.benchmarks.paced import paired_ratio
from tests.benchmarks.step_turns import LENGTH, PEFT, PEFT_BF16, ROUNDS, steps_in_turns

BUDGET_MB = 64.0
CORE = "core"
HEADER = ("figure", "bespoke", "compared with", "theirs", "bespoke's, times theirs")


@pytest.mark.benchmark
def test_the_pretrained_model() -> None:
    built = bundle(Wanted(PRETRAINED, "mesp", LENGTH, BUDGET_MB))
    with fresh_state(built, "pretrained") as state:
        peak = train(built, state, 3).peak_bytes / 1e6
    estimate = built.plan["estimate"]["peak_bytes"] / 1e6
    rows: list[list[Cell]] = [["peak memory of training, MB", f"{peak:.1f}", "its estimate", f"{estimate:.1f}", None]]
    seconds, _ = steps_in_turns(PRETRAINED, {CORE: built})
    for peer in (PEFT, PEFT_BF16):
        if peer in seconds:
            ours, theirs = (statistics.median(seconds[name]) for name in (CORE, peer))
            rows.append(["seconds a step", ours, peer, theirs, paired_ratio(seconds[CORE], seconds[peer])])
    write_table(
        "pretrained",
        HEADER,
        rows,
        f"{PRETRAINED}. Training: `mesp`, SGD, one row of {LENGTH} unmasked tokens, rank 8 on all linears, built for "
        f"{BUDGET_MB:g} MB, {THREADS} threads; medians of {ROUNDS} "
        "rounds in which each takes a turn, and of the ratios within rounds.",
        machine=this_machine(THREADS),
    )
