# SPDX-License-Identifier: Apache-2.0
"""What a round takes on a device with Qwen2.5-0.5B: planned memory next to learning alone, bytes of guidance and of a snapshot."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from tests.benchmarks.figures import write_table
from tests.benchmarks.qwen import NAME, model_folder
from transformers import AutoConfig, AutoModelForCausalLM

from bespoke import Lora, Personalizer, Training
from bespoke.plan.instructions import Estimate
from bespoke.rules.guidance import files_of

LENGTH, RANK, COLUMNS = 128, 8, 4


@pytest.mark.benchmark
def test_a_round_takes_the_guidance_of_one_block() -> None:
    model = model_folder()
    estimate = Personalizer(
        model,
        {"mezo": {}, "zgr": {"guidance_columns": COLUMNS}},
        "executorch",
        lora=Lora(rank=RANK, train="B"),
        training=Training(sequence_lengths=(LENGTH,)),
        licence="apache-2.0",
        data=None,
        text=False,
    ).estimate()
    alone, together = (
        next(plan.estimate for plan in estimate.plans if plan.method == name) for name in ("mezo", "zgr")
    )
    shapes = adapter_shapes(str(model))
    count = sum(map(math.prod, shapes.values()))
    files = files_of(np.zeros((COLUMNS, count)), shapes)
    of_block = sum(file.nbytes for name, file in files.items() if ".block_00." in name)
    half, full = (len(save({name: np.zeros(s, t) for name, s in shapes.items()})) for t in (np.float16, np.float32))
    more_programs = programs(together) - programs(alone)
    rows = [
        ["peak memory of `mezo`", f"{alone.peak_bytes / 1e6:.2f} MB"],
        ["peak memory of `zgr`", f"{together.peak_bytes / 1e6:.2f} MB"],
        ["more for programs of `zgr`", f"{more_programs / 1e6:.2f} MB"],
        ["guidance of a block", f"{of_block / 1e3:.0f} KB"],
        ["guidance of a round, all blocks", f"{sum(file.nbytes for file in files.values()) / 1e6:.2f} MB"],
        ["snapshot in float16", f"{half / 1e6:.2f} MB"],
        ["snapshot in float32", f"{full / 1e6:.2f} MB"],
    ]
    write_table(
        "federation_sizes",
        ("", "takes"),
        rows,
        f"{NAME}, T = {LENGTH}, LoRA-FA of rank {RANK} on all blocks, {COLUMNS} columns of guidance. Memory is planned; an arena "
        "holds the guidance of a block where it held other values before.",
        machine="",
    )
    assert 0 <= together.peak_bytes - alone.peak_bytes - more_programs <= of_block


def adapter_shapes(model: str) -> dict[str, tuple[int, ...]]:
    """The trained pieces, from the linear layers that transformers makes for the configuration."""
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    shapes = {}
    for number, block in enumerate(made.model.layers):
        for name, layer in block.named_modules():
            if isinstance(layer, torch.nn.Linear):
                shapes[f"block_{number:02}.{name.rpartition('.')[2]}.lora_B"] = (layer.out_features, RANK)
    return shapes


def programs(estimate: Estimate) -> int:
    return estimate.constant_bytes + estimate.engine_bytes
