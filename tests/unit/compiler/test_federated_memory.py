# SPDX-License-Identifier: Apache-2.0
"""What rounds take on top of a zeroth-order method that learns alone: the guidance of one block."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke import Lora, Personalizer, Training
from bespoke.plan.instructions import Estimate
from tests.support.checks import few_of
from tests.support.models import tiny_model

RANK, HIDDEN, MLP = 8, 128, 256
SIZES = {"hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": 4, "head_dim": 32}
ADAPTER_OF_A_BLOCK = RANK * (
    4 * (HIDDEN + HIDDEN) + 3 * (HIDDEN + MLP)
)  # elements, with as many heads of keys as of queries


@pytest.mark.parametrize("columns", few_of([4, 16], [4]))
def test_guidance_takes_the_memory_of_one_block(tmp_path: Path, columns: int) -> None:
    """Without the programs, of which a method that can do more has more."""
    model = tiny_model("llama", tmp_path / "model", num_attention_heads=4, num_key_value_heads=4, **SIZES)
    estimate = Personalizer(
        model,
        {"mezo": {}, "zgr": {"guidance_columns": columns}},
        "torch",
        lora=Lora(rank=RANK),
        training=Training(sequence_lengths=(32,)),
        licence="apache-2.0",
        data=None,
        text=False,
    ).estimate()
    alone, together = (
        next(plan.estimate for plan in estimate.plans if plan.method == name) for name in ("mezo", "zgr")
    )
    assert 0 <= numbers(together) - numbers(alone) <= ADAPTER_OF_A_BLOCK // 2 * columns + 4096


def numbers(estimate: Estimate) -> int:
    """Bytes of values, with those of the engine's workspace."""
    return estimate.arena_bytes + estimate.workspace_bytes + estimate.state_bytes + estimate.scratch_bytes
