# SPDX-License-Identifier: Apache-2.0
"""How long a build takes for each target, and how large its artifacts are: two blocks of the dimensions of Qwen2.5-0.5B."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.figures import Cell, write_table

LENGTH = 128
SIZES: dict[str, Any] = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 2048,
}
TARGETS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("torch", {}),  # which compiles nothing
    ("executorch", {}),
    ("mlx", {"int4": "decode"}),
    ("mlx", {"int4": "fused"}),
)


@pytest.mark.benchmark
def test_seconds_and_bytes_of_each_target(tmp_path: Path) -> None:
    from tests.support.models import tiny_model

    from bespoke import Lora, Personalizer, Training

    model = tiny_model("qwen2", tmp_path / "model", **SIZES)
    training = Training(sequence_lengths=(LENGTH,), batch_size=1, steps=2)
    rows: list[list[Cell]] = []
    for number, (name, options) in enumerate([("torch", {}), *TARGETS]):  # the first one imports and is left out
        personalizer = Personalizer(model, "mesp", {name: options}, lora=Lora(rank=8), training=training, data=None)
        began = time.process_time()
        bundle = personalizer.build(tmp_path / f"{number}.bundle")
        seconds = time.process_time() - began  # processor time, which other processes do not change
        sizes = [path.stat().st_size for path in (bundle / "graphs" / name).glob("*") if path.is_file()]
        label = f"`{name}`" + "".join(f", {value}" for value in options.values())
        largest = max(sizes) / 1e3 if sizes else None
        rows.append([label, len(sizes), seconds, sum(sizes) / 1e6 if sizes else None, largest])
        print(rows[-1], flush=True)
    write_table(
        "build_by_target",
        ("target", "artifacts", "processor seconds", "all artifacts, MB", "the largest, kB"),
        rows[1:],
        f"`mesp`, two blocks of Qwen2.5-0.5B's dimensions, a vocabulary of {SIZES['vocab_size']}, sequence {LENGTH}; the whole "
        "build, golden vectors included. For `mlx` each graph is run once to measure its memory, on the BLAS of MLX's package for "
        "Linux.",
    )
    assert all(row[1] for row in rows[2:])
