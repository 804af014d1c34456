# SPDX-License-Identifier: Apache-2.0
"""Losses of transformers and peft at an adapter, and along a direction of B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.gradients.eager import Tensors
from tests.gradients.exact_reference import ExactReference, direction
from tests.gradients.harness import Base, spec

RANK, SEED, STEPS = 3, 5, 3


def losses_at(base: Base, adapter: Any, batch: Any) -> Callable[[Tensors], float]:
    """L at an adapter, by transformers and peft."""
    reference = ExactReference(base, spec(base, RANK), adapter)

    def loss(at: Tensors) -> float:
        reference.set(at)
        with torch.no_grad():
            return float(reference.loss(batch))

    return loss


def along_b(base: Base, query: int, distribution: str, step: int) -> Tensors:
    drawn = direction(base, RANK, query, distribution, seed=SEED, step=step)
    return {piece: z * piece.endswith("lora_B") for piece, z in drawn.items()}
