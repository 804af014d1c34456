# SPDX-License-Identifier: Apache-2.0
"""The oracle itself: its two precisions agree, the window bites, and its gradients are the slopes of its loss."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bespoke.config import Lora
from bespoke.model.families import read_config
from tests.support.models import TINY_FAMILIES, dequantized_reference, masked_loss, peft_reference, tiny_model


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_fp32_and_float64_references_agree_and_float64_slopes_are_its_gradients(family: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path)
    generator = np.random.Generator(np.random.Philox(0))
    shapes = read_config(folder).adapter_shapes(Lora(rank=2))
    pieces = {name: 0.1 * generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    tokens, targets = (torch.from_numpy(generator.integers(0, 131, (2, 17))) for _ in range(2))
    mask = torch.from_numpy(generator.integers(0, 2, (2, 17)))

    losses = []
    for dtype in (torch.float32, torch.float64):
        model, parameters = peft_reference(folder, pieces, rank=2, alpha=4.0, dtype=dtype)
        assert {name: tuple(p.shape) for name, p in parameters.items()} == shapes
        loss = masked_loss(model, tokens, targets, mask)
        assert loss.dtype == dtype
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)

    loss.backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == {
        name for name, p in model.named_parameters() if "lora_" in name
    }
    for name in ("block_00.q_proj.lora_A", "block_01.down_proj.lora_B"):
        parameter, step = parameters[name], 1e-5
        direction = torch.from_numpy(generator.standard_normal(tuple(parameter.shape)))
        ends = []
        with torch.no_grad():
            for sign in (1, -1):
                parameter += sign * step * direction
                ends.append(float(masked_loss(model, tokens, targets, mask)))
                parameter -= sign * step * direction
        slope = (ends[0] - ends[1]) / (2 * step)
        assert slope == pytest.approx(float((parameter.grad * direction).sum()), rel=1e-6, abs=1e-9)


def test_the_window_of_the_tiny_gemma_bites(tmp_path: Path) -> None:
    folder = tiny_model("gemma3_text", tmp_path)
    assert set(read_config(folder).sliding_layers) == {True, False}
    tokens = torch.arange(24)[None]
    with torch.no_grad():
        narrow = dequantized_reference(folder)(tokens).logits
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(raw | {"sliding_window": 64}), encoding="utf-8")
        wide = dequantized_reference(folder)(tokens).logits
    assert torch.equal(narrow[:, :8], wide[:, :8])
    assert (narrow[:, 8:] - wide[:, 8:]).abs().max() > 1e-2
