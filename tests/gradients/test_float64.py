# SPDX-License-Identifier: Apache-2.0
"""Whole training steps in float64 against transformers and peft in float64: no rounding can hide a wrong formula.

The reference takes our RoPE tables and Gemma's 1 + w as fp32 holds it, both of which are held against its own elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bespoke.config import Training
from tests.gradients.eager import doubles
from tests.gradients.exact_reference import GRADIENT_TOLERANCE, KEEPING, TILES, ExactReference, direction, eager
from tests.gradients.harness import Bases, random_adapter, random_batch, spec
from tests.support.checks import few_of
from tests.support.models import TINY_FAMILIES


@pytest.mark.parametrize("name", few_of(TINY_FAMILIES, ("llama",)))
def test_gradients_are_those_of_peft(name: str, bases: Bases) -> None:
    base, batch = bases(name), random_batch(bases(name).config, 33)
    adapter = random_adapter(spec(base, 3))
    reference_loss, expected = ExactReference(base, spec(base, 3), adapter).gradients(batch)
    for method, tiles in (("mebp", TILES), ("mesp", TILES), ("mesp", KEEPING)):
        b = eager(base, method, 3, batch, doubles(adapter), Training(batch_size=3, accumulation=2), tiles=tiles)
        assert b.metrics["loss"] == pytest.approx(reference_loss, rel=1e-12)
        for piece, reference in expected.items():
            error = np.linalg.norm(b.sums[piece].tensor.numpy() - reference) / np.linalg.norm(reference)
            assert error <= GRADIENT_TOLERANCE, f"{method}, {tiles}, {piece}"


@pytest.mark.parametrize("distribution", ["normal", "rademacher"])
@pytest.mark.parametrize("name", few_of(("qwen2", "gemma3_text"), ("qwen2",)))
def test_projected_gradient_is_the_difference_of_two_direct_losses(name: str, distribution: Any, bases: Bases) -> None:
    base, batch, epsilon = bases(name), random_batch(bases(name).config, 33), 1e-3
    adapter = random_adapter(spec(base, 3))
    options = {"epsilon": epsilon, "queries": 2, "distribution": distribution}
    b = eager(base, "mezo", 3, batch, doubles(adapter), Training(batch_size=3), options, epsilon=epsilon)
    reference = ExactReference(base, spec(base, 3), adapter)
    for query, g in enumerate(b.recorded):
        z = direction(base, 3, query, distribution)
        losses = []
        for sign in (+1, -1):
            reference.set({piece: value + sign * epsilon * z[piece] for piece, value in doubles(adapter).items()})
            with torch.no_grad():
                losses.append(float(reference.loss(batch)))
        assert g == pytest.approx((losses[0] - losses[1]) / (2 * epsilon), rel=1e-9)
