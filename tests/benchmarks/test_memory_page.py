# SPDX-License-Identifier: Apache-2.0
"""Figures and picture of docs/explanation/memory.md: where the bytes of a plan for Qwen2.5-0.5B go.

Read from the bundles that test_estimate has built, which runs before; a bundle that is not there is built. Nothing is run.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.qwen import CACHE, NAME, build, model_folder
from tests.conftest import REPOSITORY

PICTURE = REPOSITORY / "docs" / "explanation" / "images" / "qwen2.5-0.5b_mesp_256.svg"
PICTURED = ("mesp", 256)
CASES = [(("mesp",), 128), (("mebp", "mesp", "mezo"), 256), (("mesp",), 512)]


@pytest.mark.benchmark
def test_where_the_bytes_of_a_plan_go() -> None:
    rows: list[list[Cell]] = []
    for methods, length in CASES:
        bundle = CACHE / f"{NAME}_{'_'.join(methods)}_{length}_1.bundle"
        if not bundle.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            build(model_folder(), bundle, methods, length, 1)
        manifest = json.loads((bundle / "manifest.json").read_text())
        plans = [(record["name"], *record["plans"]) for record in manifest["methods"]]
        for name, plan in [*plans, ("generation", manifest["generation"])]:
            size = {name: value / 1e6 for name, value in plan["estimate"].items()}
            workspace = size["workspace_bytes"] + size["engine_bytes"]
            anonymous = (size["arena_bytes"], workspace, size["constant_bytes"], size["peak_bytes"])
            others = (size["scratch_bytes"], 2 * size["state_bytes"], size["session_bytes"])
            row: list[Cell] = [name, plan["sequence_length"], *(f"{mb:.1f}" for mb in (*anonymous, *others))]
            if row not in rows:  # bundles of one model answer alike
                rows.append(row)
            if (name, length) == PICTURED:
                draw = ["inspect", str(bundle), "--method", name, "--plot", str(PICTURE)]
                subprocess.run([sys.executable, "-m", "bespoke.cli", *draw], check=True, stdout=subprocess.DEVNULL)
    write_table(
        "memory",
        (
            "method",
            "sequence",
            "arena",
            "workspace",
            "constant",
            "peak",
            "checkpoints in a file",
            "state, twice",
            "KV cache",
        ),
        rows,
        "Estimates in MB: Qwen2.5-0.5B, published configuration, rank 8, batch 1, AdamW (mezo: none), no budget. Peak = arena + "
        "workspace + constant + KV cache. Checkpoints in a file and state are mapped. The plan for answers (generation) has the KV "
        "cache of 1024 tokens and takes prompts in chunks of so many.",
        machine="",
    )
