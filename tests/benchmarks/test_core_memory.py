# SPDX-License-Identifier: Apache-2.0
"""Memory of the device core on models of published size: the whole process, seen from another one every millisecond.

Exact gradients (`mesp`) of SGD steps on 256 and 1024 unmasked tokens, with the smaller of a case's budgets that a plan fits. `mebp`
with the least that it can do with. Commits after every step and the gate before and after are in it. Memory does not depend on the
load of the machine.

BESPOKE_BENCHMARK_MODELS=Qwen2.5-0.5B,... measures these models only, and then writes nothing.
"""

from __future__ import annotations

import os

import pytest
from tests.benchmarks.core_bundles import Bundle
from tests.benchmarks.core_process import CoreRun, file_system_of, fresh_state, train
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.memory_cases import CASES, Case, bundles_of
from tests.benchmarks.overview import write_overview

STEPS = 3
SHARE, OR_BYTES = 0.15, 8_000_000  # how far an estimate may be off


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
