# SPDX-License-Identifier: Apache-2.0
"""Memory of the device core on models of published size: the whole process, seen from another one every millisecond.

Exact gradients (`mesp`) of SGD steps on 256 and 1024 unmasked tokens, with the smaller of a case's budgets that a plan fits. `mebp`
with the least that it can do with. Commits after every step and the gate before and after are in it. Memory does not depend on the
load of the machine.

BESPOKE_BENCHMARK_MODELS=Qwen2.5-0.5B,... measures these models only, and then writes nothing.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest
from tests.benchmarks.core_bundles import Bundle, Wanted, first_that_fits, smallest_bundle
from tests.benchmarks.core_process import CoreRun, file_system_of, fresh_state, train
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.overview import write_overview

STEPS = 3
SHARE, OR_BYTES = 0.15, 8_000_000  # how far an estimate may be off


class Case(NamedTuple):
    """MB. A peak above the larger budget fails. The papers' are peaks on phones, with int4 weights and rank 8, of whole apps."""

    model: str
    length: int
    budgets_mb: tuple[float, float]
    mesp_paper: float | None
    mebp_paper: float | None


CASES = [
    Case("Qwen2.5-0.5B", 256, (45, 64), 136, 320),
    Case("Qwen2.5-1.5B", 256, (65, 110), 263, 460),
    Case("Qwen2.5-3B", 256, (85, 160), 368, 662),
    Case("gemma-3-1b-it", 256, (120, 120), None, 569),
    Case("Qwen2.5-0.5B", 1024, (64, 96), 514, None),
    Case("Qwen2.5-1.5B", 1024, (100, 150), 799, 994),
]
HEADER = (
    "model",
    "method",
    "sequence",
    "built for, MB",
    "peak, MB",
    "estimate, MB",
    "difference, MB",
    "mapped dirty, MB",
    "peak and dirty, MB",
    "MeSP's paper, MB",
    "MeBP's paper, MB",
    "tiles and choices",
)
_ASKED = os.environ.get("BESPOKE_BENCHMARK_MODELS", "").split(",")


@pytest.mark.benchmark
def test_peak_of_exact_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[list[Cell]] = []
    problems: list[str] = []
    run = None
    for case in CASES:
        if _ASKED != [""] and case.model not in _ASKED:
            continue
        for bundle in bundles_of(case):
            run = measured(bundle)
            rows.append(row(case, bundle, run))
            print(rows[-1], run.readings, flush=True)
            problems += far_off(case, bundle, run)
    assert run is not None
    if _ASKED != [""]:
        monkeypatch.setenv("BESPOKE_FIGURES", "print")
    write_table(
        "core_memory",
        HEADER,
        rows,
        f"The device core as a process of its own: RssAnon + RssShmem + swap from exec to exit, {STEPS} steps of SGD, rank 8 on "
        "all linears, batch 1, random weights in the published configuration, all blocks, the real vocabulary, no masked token; "
        "opening the bundle, a commit after every step and the gate are in it. Built for: the budget given to the planner, which "
        "takes the fastest plan within it (`mebp`: the least it can do with). Mapped dirty: the most seen in smaps, of pages of "
        "mapped files that the system had still to write back. The papers' figures are peaks that they measured on phones. "
        f"Watching the last one: {run.readings}.",
    )
    write_overview()
    assert not problems, "\n".join(problems)


def bundles_of(case: Case) -> list[Bundle]:
    """`mesp` within the budgets, and at 256 tokens `mebp` with the least that it can do with."""
    found = [first_that_fits(Wanted(case.model, "mesp", case.length, None), *case.budgets_mb)]
    return found + ([smallest_bundle(Wanted(case.model, "mebp", case.length, None))] if case.length == 256 else [])


def measured(bundle: Bundle) -> CoreRun:
    with fresh_state(bundle, "memory") as state:
        assert file_system_of(state) != "tmpfs", f"{state} is in memory"
        run = train(bundle, state, STEPS)
    assert len(run.steps) == STEPS
    assert run.watched["readings"] > 200 * run.watched["seconds"], f"too few readings: {run.readings}"
    return run


def row(case: Case, bundle: Bundle, run: CoreRun) -> list[Cell]:
    estimate = bundle.plan["estimate"]["peak_bytes"]
    seen = run.watched
    megabytes = (
        run.peak_bytes,
        estimate,
        estimate - run.peak_bytes,
        seen["dirty_mapped_peak_bytes"],
        seen["anonymous_and_dirty_peak_bytes"],
    )
    cells = [f"{value / 1e6:.1f}" for value in megabytes]
    cells[2] = f"{megabytes[2] / 1e6:+.1f}"
    return [
        case.model,
        f"`{bundle.wanted.method}`",
        case.length,
        f"{bundle.wanted.memory_mb:g}",
        *cells,
        case.mesp_paper,
        case.mebp_paper,
        bundle.choices,
    ]


def far_off(case: Case, bundle: Bundle, run: CoreRun) -> list[str]:
    """What is wrong with a run, in words."""
    what = f"{case.model}, {bundle.wanted.method} at {case.length}"
    peak, estimate = run.peak_bytes, bundle.plan["estimate"]["peak_bytes"]
    problems = []
    if abs(estimate - peak) > max(SHARE * peak, OR_BYTES):
        problems.append(f"{what}: estimated {estimate / 1e6:.1f} MB, measured {peak / 1e6:.1f}")
    if bundle.wanted.method == "mesp":
        if peak > case.budgets_mb[-1] * 1e6:
            problems.append(f"{what}: {peak / 1e6:.1f} MB, at most {case.budgets_mb[-1]}")
        both = run.watched["anonymous_and_dirty_peak_bytes"]
        if case.mesp_paper is not None and both >= case.mesp_paper * 1e6:
            problems.append(f"{what}: {both / 1e6:.1f} MB with mapped dirty pages, MeSP's paper {case.mesp_paper}")
    return problems
