# SPDX-License-Identifier: Apache-2.0
"""Adapters on some linears only: bundles of them, and their way to peft and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel

from bespoke import PersonalModel
from tests.support.models import dequantized_reference, masked_loss

ASKED = [{"tokens": row.tolist(), "mask": [0] + [1] * 12} for row in np.random.default_rng(3).integers(3, 131, (2, 13))]


def comes_back_and_is_the_same_in_peft(folder: Path, adapter: Path, ours: float, tmp_path: Path) -> None:
    """An exported adapter with the loss `ours` on ASKED: in peft, and in another state of the bundle."""
    theirs = PeftModel.from_pretrained(dequantized_reference(folder / "model", dtype=torch.float64), adapter).double()
    ids = torch.tensor([row["tokens"] for row in ASKED])
    with torch.no_grad():
        assert float(masked_loss(theirs, ids[:, :-1], ids[:, 1:], torch.ones(2, 12))) == pytest.approx(ours, rel=1e-5)
    with PersonalModel.open(folder / "bundle", tmp_path / "other") as other:
        other.import_adapter(adapter)
        assert other.evaluate(ASKED).loss == ours
