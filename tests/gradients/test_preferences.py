# SPDX-License-Identifier: Apache-2.0
"""A preference loss on pairs, by a plugin that asks for arrays, against autograd through transformers and peft in float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from bespoke.graph.trace import Tracer
from bespoke.testing.tiny import TokenBatch
from tests.gradients.harness import Bases, Reference, random_adapter, random_batch, rig, spec, worst_error
from tests.support.checks import few_of

LENGTH, ROWS, RANK = 17, 3, 3
BETA, GAMMA = 1.5, 0.25


def pairs(base_config: object, seed: int) -> tuple[TokenBatch, TokenBatch]:
    """Chosen and rejected answers of random tokens; the last pair is padding."""
    chosen, rejected = (random_batch(base_config, LENGTH, rows=ROWS, seed=seed + n) for n in (0, 100))  # type: ignore[arg-type]
    return chosen, rejected


def mean_losses(reference: Reference, batch: TokenBatch) -> torch.Tensor:
    """The mean loss of each row over its unmasked tokens [B]."""
    logits = reference.peft(input_ids=batch.tokens, use_cache=False).logits
    losses = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none").view(batch.mask.shape)
    return (losses * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)


@pytest.mark.parametrize("family", few_of(("llama", "gemma3_text"), ("llama",)))
def test_gradients_of_a_preference_loss_are_those_of_peft(family: str, bases: Bases, tracer: Tracer) -> None:
    base = bases(family)
    adapter = random_adapter(spec(base, RANK), seed=1)
    chosen, rejected = pairs(base.config, seed=5)
    reference = Reference(base, spec(base, RANK), adapter)
    tokens = chosen.mask.sum(1).double()
    z = BETA * (mean_losses(reference, rejected) - mean_losses(reference, chosen)) - GAMMA
    wanted = -(tokens * F.logsigmoid(z)).sum() / tokens.sum()
    names = list(reference.parameters)
    expected = torch.autograd.grad(wanted, [reference.parameters[name] for name in names])

    arrays = {f"rejected_{name}": getattr(rejected, name) for name in ("tokens", "targets", "mask")}
    made = rig(base, "simpo", LENGTH, RANK, tracer, rows=ROWS, options={"beta": BETA, "gamma": GAMMA})
    loss, found = made.gradients(adapter, dataclasses.replace(chosen, arrays=arrays))
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-6)
    error, where = worst_error(found, {name: g.numpy() for name, g in zip(names, expected, strict=True)})
    assert error <= 1e-5, where
