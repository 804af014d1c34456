# SPDX-License-Identifier: Apache-2.0
"""What peft computes with an adapter, and a model as mlx-lm reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke import PersonalModel
from tests.native.family_folders import VOCABULARY
from tests.support.models import dequantized_reference

TOKENS = [[3 + (7 * row + 13 * place) % (VOCABULARY - 3) for place in range(24)] for row in range(4)]


@pytest.fixture
def model(folder: Path, tmp_path: Path) -> Any:
    with PersonalModel.open(folder / "bundle", tmp_path / "state") as opened:
        opened.import_adapter(folder / "adapters" / "0", trust_base=True)
        yield opened


def effect_in_peft(folder: Path, decoded: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Logits of transformers without the adapter, and what peft's adds to them, [rows, tokens, V]; `decoded`: of int4 weights."""
    import peft
    from transformers import AutoModelForCausalLM

    def original() -> Any:
        return AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager")

    base = dequantized_reference(folder / "model") if decoded else original()
    with torch.no_grad():
        without = base(input_ids=torch.tensor(TOKENS)).logits.numpy()
        adapted = peft.PeftModel.from_pretrained(base, str(folder / "adapters" / "0"))
        return without, adapted(input_ids=torch.tensor(TOKENS)).logits.numpy() - without


def for_mlx_lm(model: Path, copy: Path) -> Path:
    """With the RoPE settings where mlx-lm reads them; transformers 5 writes them elsewhere."""
    shutil.copytree(model, copy)
    config = json.loads((copy / "config.json").read_text())
    rope = config["rope_parameters"]
    config["rope_theta"] = rope.get("full_attention", rope)["rope_theta"]
    if "sliding_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    elif rope["rope_type"] != "default":
        config["rope_scaling"] = rope
    (copy / "config.json").write_text(json.dumps(config))
    return copy
