# SPDX-License-Identifier: Apache-2.0
"""Milliseconds of a token in an app with a large heap: a limit on what a call adds to the app must not cost time for each token."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from tests.benchmarks.app_heap import LIMITS
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.paced import paired_ratio
from tests.conftest import REPOSITORY
from tests.support.bundles import tiny_core_bundle
from tests.support.faults_library import compile_preloaded

__all__ = ["tiny_core_bundle"]

HEAPS = (0, 400_000_000)  # bytes
TOKENS = 1000
MOST_MILLISECONDS = 0.1


@pytest.mark.benchmark
def test_a_limit_on_what_is_added_costs_no_time_for_each_token(tiny_core_bundle: Path, tmp_path: Path) -> None:
    filler = compile_preloaded(Path(__file__).with_name("app_heap.c"), tmp_path)
    rows: list[list[Cell]] = []
    costs = []
    for heap in HEAPS:
        states = tmp_path / str(heap)
        states.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.app_heap", tiny_core_bundle, states, str(TOKENS)],
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(filler), "BESPOKE_HEAP_BYTES": str(heap)},
            check=True,
        )
        milliseconds = json.loads(done.stdout)
        whole, added = (milliseconds[name] for name in LIMITS)
        costs.append(statistics.median(one - other for one, other in zip(added, whole, strict=True)))
        rows.append(
            [heap // 10**6, statistics.median(whole), statistics.median(added), costs[-1], paired_ratio(added, whole)]
        )
    header = ("heap of the app, MB", "limit of the process, ms", "limit on what is added, ms", "more, ms", "ratio")
    write_table(
        "app_heap",
        header,
        rows,
        "A token of a tiny model, which computes next to nothing: medians of tokens in turns, of their differences and ratios. "
        "Half of the heap is free, in holes of two pages.",
    )
    assert max(costs) <= MOST_MILLISECONDS, costs
