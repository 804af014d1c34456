# SPDX-License-Identifier: Apache-2.0
"""kill -9 while training, at any instant and inside commits: a run resumes and ends with the bits of an undisturbed one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.personal_model.tiny import STEPS, tiny_bundle, tiny_folder  # noqa: F401

REPOSITORY = Path(__file__).resolve().parents[2]
# Kills of each method: 10 in the fast tests, 100 in all of them.
FEW = {"mesp": 4, "mebp": 3, "mezo": 3}
MANY = {"mesp": 34, "mebp": 33, "mezo": 33}
KINDS = {"mesp": "mesp, AdamW", "mebp": "mebp, AdamW, two micro-batches a step", "mezo": "mezo, journal"}

pytestmark = pytest.mark.xdist_group("tiny")


def lab(bundle: Path, place: Path, counts: dict[str, int], seed: int, preload: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.lab", bundle, place, json.dumps(counts), str(seed)],
        cwd=REPOSITORY,
        env={**os.environ, "LD_PRELOAD": str(preload), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("counts", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)])
def test_a_run_killed_at_any_instant_ends_bit_equal_to_an_undisturbed_one(
    tiny_bundle: Path, faults: Path, place: Path, counts: dict[str, int]  # noqa: F811
) -> None:
    lines = lab(tiny_bundle, place, counts, seed=sum(counts.values()), preload=faults)
    everywhere = [judged([line for line in lines if line["method"] == method], method, count) for method, count in counts.items()]
    kills, inside = (sum(numbers) for numbers in zip(*everywhere, strict=True))
    assert kills == sum(counts.values())
    assert inside * 10 >= kills
    print(f"| kills, all kinds | {kills} kills, {inside} inside a commit | all ended bit-equal |")


def judged(lines: list[dict[str, Any]], method: str, count: int) -> tuple[int, int]:
    """How many kills the runs of one method survived, and how many of them came inside a commit."""
    expected, *runs = lines
    right = expected["outcome"]
    assert right["ended"] == "finished"
    assert right["step"] == len(right["losses"]) == STEPS
    assert len(right["state"]) == 1
    assert bool(right["journal"]) == (method == "mezo")
    for run in runs:
        assert run["outcome"] == right, run["kills"]
    kills = [kill for run in runs for kill in run["kills"]]
    inside = sum(kill["inside"] for kill in kills)
    assert len(kills) == count
    assert all(kill["inside"] for kill in kills if kill["aimed"])
    print(
        f"\n| kills, {KINDS[method]} | {len(kills)} kills of {len(runs)} runs, {inside} inside a commit | "
        f"all ended bit-equal ({expected['commits']} commits in an undisturbed run) |"
    )
    return len(kills), inside
