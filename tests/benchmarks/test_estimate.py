# SPDX-License-Identifier: Apache-2.0
"""The estimate of a plan against what training was seen to add, both over the idle process: imports done, no model open.

One set of constants (`bespoke.plan.costs`) for all models, methods and lengths. Each case trains in a fresh process. Memory does
not depend on how busy the machine is. BESPOKE_KEEP_BUNDLES=1 uses bundles that an earlier run has left.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.footprint import Watched
from tests.benchmarks.qwen import CACHE, NAME, build, model_folder, train
from tests.support.estimate_bounds import OR_BYTES, SHARE

METHODS = ("mebp", "mesp", "mezo")


class Case(NamedTuple):
    model: str
    methods: tuple[str, ...]
    sequence_length: int
    batch_size: int
    steps: int


CASES = [
    *(Case("stories260K", METHODS, length, batch, 3) for length in (64, 256) for batch in (1, 4)),
    Case(NAME, ("mesp",), 128, 1, 1),
    Case(NAME, METHODS, 256, 1, 1),
    Case(NAME, ("mesp",), 512, 1, 1),
]


@pytest.mark.benchmark
def test_estimates_against_measured(stories: Path) -> None:
    rows: list[list[Cell]] = []
    far_off: list[str] = []
    for case in CASES:
        for method, run in measured(case, stories if case.model == "stories260K" else model_folder()):
            estimate, added = run.report["memory"]["estimate_bytes"], run.added()
            off = added - estimate
            figures = (f"{estimate / 1e6:.1f}", f"{added / 1e6:.1f}", f"{off / 1e6:+.1f}")
            rows.append([case.model, method, case.sequence_length, case.batch_size, *figures])
            print(rows[-1], flush=True)
            if abs(off) > max(SHARE * added, OR_BYTES):
                far_off.append(
                    f"{case.model}, {method} at {case.sequence_length} x {case.batch_size}: {off / 1e6:+.1f} MB"
                )
    write_table(
        "estimates",
        ("model", "method", "sequence", "batch", "estimate, MB", "measured, MB", "difference, MB"),
        rows,
        "Anonymous memory over the idle process (imports done, no model open), read from outside every millisecond; opening the "
        "bundle, training and the acceptance gate are in it.",
    )
    assert not far_off


def measured(case: Case, model: Path) -> Iterator[tuple[str, Watched]]:
    CACHE.mkdir(parents=True, exist_ok=True)
    bundle = CACHE / f"{case.model}_{'_'.join(case.methods)}_{case.sequence_length}_{case.batch_size}.bundle"
    if not (os.environ.get("BESPOKE_KEEP_BUNDLES") and bundle.exists()):
        build(model, bundle, case.methods, case.sequence_length, case.batch_size)
    for method in case.methods:
        with tempfile.TemporaryDirectory(dir=CACHE) as state:
            yield (
                method,
                train(bundle, Path(state) / "state", case.sequence_length, case.steps, method, case.batch_size),
            )
