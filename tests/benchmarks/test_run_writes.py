# SPDX-License-Identifier: Apache-2.0
"""What a run of 300 steps writes to the files of a state, of models of real size: computed from their published shapes.

tests/unit/personal_model/test_run_writes.py holds the same functions against the files that runs write.
"""

from __future__ import annotations

import pytest
from tests.benchmarks.figures import Cell, write_table

from bespoke.config import LINEARS, MEGABYTE, Training
from bespoke.rules.run_writes import most_written, tensor_file_bytes

RANK, STEPS = 8, 300
# Name -> layers, hidden, intermediate, width of keys and values, from the models' config.json.
MODELS = {"SmolLM2-135M": (30, 576, 1536, 192), "Qwen2.5-0.5B": (24, 896, 4864, 128)}
SECONDS = (2, 10)  # durations of a step


def adapter_shapes(layers: int, hidden: int, intermediate: int, keys: int) -> dict[str, tuple[int, int]]:
    widths = {
        "q_proj": (hidden, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, hidden),
        "gate_proj": (intermediate, hidden),
        "up_proj": (intermediate, hidden),
        "down_proj": (hidden, intermediate),
    }
    shapes = {}
    for layer in range(layers):
        for linear in LINEARS:
            out, width = widths[linear]
            shapes[f"block_{layer:02d}.{linear}.lora_A"] = (RANK, width)
            shapes[f"block_{layer:02d}.{linear}.lora_B"] = (out, RANK)
    return shapes


@pytest.mark.benchmark
def test_what_a_run_of_300_steps_writes() -> None:
    training = Training(steps=STEPS)
    rows: list[list[Cell]] = []
    for name, sizes in MODELS.items():
        shapes = adapter_shapes(*sizes)
        adapter = tensor_file_bytes(shapes)
        slot = tensor_file_bytes(
            {f"{piece}{state}": shape for piece, shape in shapes.items() for state in ("", ".m", ".v")}
        )
        now = most_written(slot, adapter, training, replayable=False)
        by_rate = []
        for seconds in SECONDS:
            apart = max(training.commit_seconds, slot / (training.write_mb_per_second * MEGABYTE), seconds)
            slots = int(STEPS * seconds / apart)
            by_rate.append((slots * slot + 11 * adapter) / MEGABYTE)
        assert now <= max(300 * MEGABYTE, slot + 11 * adapter)
        rows.append(
            [name, slot / MEGABYTE, adapter / MEGABYTE, *(f"{most:.0f}" for most in by_rate), f"{now / MEGABYTE:.0f}"]
        )
    write_table(
        "run_writes",
        (
            "model",
            "slot, MB",
            "adapter, MB",
            *(f"by time alone, {seconds} s a step, MB" for seconds in SECONDS),
            "at most, MB",
        ),
        rows,
        f"{STEPS} steps, AdamW, rank {RANK} on all linear layers, in one call, with default settings: slots, ten adapters "
        "of best steps and the accepted one. By time alone: `write_mb_per_run=None`. Computed from the models' shapes.",
        machine="",
    )
