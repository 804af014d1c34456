# SPDX-License-Identifier: Apache-2.0
"""Figures and picture of docs/explanation/memory.md: where the bytes of a plan for Qwen2.5-0.5B go.

A plan follows from the configuration alone, so no weights are written: these are the plans that a bundle would hold, and the
picture is what `bespoke inspect --plot` draws of it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.conftest import REPOSITORY
from tests.full_size import PUBLISHED

PICTURE = REPOSITORY / "docs" / "explanation" / "images" / "qwen2.5-0.5b_mesp_256.svg"
CASES = [("mesp", 256), ("mesp", 512), ("mebp", 256), ("mezo", 256)]


@pytest.mark.benchmark
def test_where_the_bytes_of_a_plan_go(tmp_path: Path) -> None:
    from bespoke import Lora, Training, plugins
    from bespoke.graph.planner import Request, plan_method
    from bespoke.graph.trace import Tracer
    from bespoke.model.config import read_config
    from bespoke.model.spec import ModelSpec
    from bespoke.plot import plot_plan
    from bespoke.runtime.cost import TORCH_COSTS

    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["Qwen2.5-0.5B"]), encoding="utf-8")
    model, tracer = ModelSpec(read_config(tmp_path), Lora()), Tracer()
    rows: list[list[Cell]] = []

    def planned(method: str, length: int, budget_bytes: int | None, about: str) -> int:
        plugin = plugins.get("optimizer", method)
        request = Request(
            method, plugin, plugin.Options(), Training(sequence_lengths=(length,)), length, 2 * length, budget_bytes, TORCH_COSTS
        )
        plan = plan_method(request, model, tracer).plan
        e = plan.estimate
        anonymous = (e.arena_bytes, e.workspace_bytes, e.constant_bytes, e.peak_bytes)
        sizes = (*anonymous, e.scratch_bytes, 2 * e.state_bytes, e.session_bytes)
        rows.append([method, length, about, *(f"{size / 1e6:.1f}" for size in sizes)])
        if (method, length, budget_bytes) == ("mesp", 256, None) and os.environ.get("BESPOKE_FIGURES") != "print":
            PICTURE.parent.mkdir(exist_ok=True)
            plot_plan(plan, PICTURE)
        return e.peak_bytes

    for method, length in CASES:
        peak = planned(method, length, None, "none")
        if (method, length) == ("mesp", 256):
            budget = int(0.75 * peak)
            planned(method, length, budget, f"{budget / 1e6:.1f}")
    write_table(
        "memory",
        ("method", "sequence", "budget", "arena", "workspace", "constant", "peak", "checkpoints (mapped)", "state, twice (mapped)",
         "KV cache"),
        rows,
        "Qwen2.5-0.5B, published configuration, rank 8, batch 1, AdamW (mezo: none); estimates, in MB. Peak = arena + workspace + "
        "constant. The KV cache is there while the model answers, not while it trains.",
        machine="planned, not run; what was measured beside it stands in the README",
    )  # fmt: skip
