# SPDX-License-Identifier: Apache-2.0
"""What the tests of Swift's engines start from: a small bundle for Core ML, and what Python does with it.

A folder then holds small.bundle (a random Llama of two blocks that takes token ids, with a method that needs no gradients, so that
its graphs have few operators), tokens.json (examples), and engines.json (what torch makes of the bundle's own graphs: the loss of
the base model, and the losses of a run of STEPS steps).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 3
SIZES: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}


def make(out: Path) -> None:
    """All of it."""
    from bespoke import Lora, Personalizer, Training
    from tests.support.models import tiny_model

    bundle = out / "small.bundle"
    for folder in (bundle, out / "small"):
        shutil.rmtree(folder, ignore_errors=True)
    training = Training(sequence_lengths=(16,), batch_size=2, steps=STEPS, seed=1)
    methods = {"mezo": {"learning_rate": 1e-3, "epsilon": 1e-2}}
    Personalizer(
        tiny_model("llama", out / "small", **SIZES),
        methods,
        "coreml",
        context=40,
        lora=Lora(rank=2),
        training=training,
        data=None,
        text=False,
    ).build(bundle)
    what_torch_does(bundle, out)


def what_torch_does(bundle: Path, out: Path) -> None:
    """The same calls as in EngineTests.swift."""
    from bespoke import PersonalModel

    tokens = np.random.default_rng(5).integers(3, 131, (4, 14)).tolist()
    shutil.rmtree(out / "torch", ignore_errors=True)
    with PersonalModel.open(bundle, out / "torch", engine="torch") as model:
        for number, example in enumerate(tokens):
            model.examples.add({"tokens": example}, id=f"example-{number}", use="train")
        before = model.evaluate(split="train")
        report = model.train()
    found = {"losses": report.losses, "loss_before": before.loss}
    (out / "engines.json").write_text(json.dumps(found))
    (out / "tokens.json").write_text(json.dumps(tokens))
