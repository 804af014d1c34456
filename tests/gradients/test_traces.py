# SPDX-License-Identifier: Apache-2.0
"""Training against torch.optim over peft in float64: losses agree step by step, for fifty steps and in the fast tests for fewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from bespoke.compiler.weight_files import initial_adapter
from bespoke.config import Training
from bespoke.graph.trace import Tracer
from bespoke.rules.schedule import learning_rate_at
from bespoke.testing.tiny import TokenBatch
from tests.gradients.harness import Arrays, Base, Bases, Reference, random_adapter, random_batch, rig, spec

FEW, MANY = 16, 50
TOLERANCE = 1e-4  # nats
LENGTH, ROWS, RANK = 24, 2, 8


# A step of each kind is in the few; many let errors grow.
FEW_OR_MANY = pytest.mark.parametrize(
    "count", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]
)


def batches_of(ids: Sequence[int], count: int) -> list[list[TokenBatch]]:
    """A batch of real text for each step; the last is the first again, to see what was learned."""
    rows = torch.tensor(ids[: count * ROWS * (LENGTH + 1)]).view(count, ROWS, LENGTH + 1)
    batches = [
        TokenBatch(step[:, :-1].contiguous(), step[:, 1:].contiguous(), torch.ones(ROWS, LENGTH)) for step in rows
    ]
    return [[batch] for batch in (*batches[:-1], batches[0])]


def reference_losses(
    base: Base,
    adapter: Arrays,
    steps: Sequence[Sequence[TokenBatch]],
    optimizer: Any,
    *,
    rank: int = RANK,
    clip_norm: float | None = None,
    scheduler: Any = None,
) -> list[float]:
    """torch's own optimizer, clipping and schedule; micro-batches are one backward each, over all tokens of their step."""
    reference = Reference(base, spec(base, rank), adapter)
    for parameter in reference.parameters.values():
        parameter.requires_grad_(True)
    rule = optimizer(list(reference.parameters.values()))
    schedule = scheduler(rule) if scheduler else None
    losses = []
    for batches in steps:
        rule.zero_grad()
        tokens = sum(batch.trained for batch in batches)
        parts = []
        for batch in batches:
            loss = reference.loss(batch) * (batch.trained / tokens)
            loss.backward()
            parts.append(float(loss.detach()))
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(rule.param_groups[0]["params"], clip_norm)
        rule.step()
        if schedule is not None:
            schedule.step()
        losses.append(sum(parts))
    return losses


def our_losses(
    base: Base,
    method: str,
    adapter: Arrays,
    steps: Sequence[Sequence[TokenBatch]],
    training: Training,
    tracer: Tracer,
    *,
    rank: int = RANK,
    **options: Any,
) -> list[float]:
    rows, length = steps[0][0].tokens.shape
    machine = rig(base, method, length, rank, tracer, training=training, options=options, rows=rows)
    machine.buffers.fill(adapter)
    losses = []
    for number, batches in enumerate(steps, 1):
        lr = learning_rate_at(
            number,
            peak=training.learning_rate,
            schedule=training.schedule,
            warmup_steps=training.warmup_steps,
            total_steps=len(steps),
        )
        losses.append(machine.step(batches, step=number, lr=lr).metrics["loss"])
    return losses


@pytest.mark.slow
@FEW_OR_MANY
def test_sgd_follows_torch_and_both_exact_methods_follow_each_other(
    count: int, bases: Bases, shakespeare: list[int], tracer: Tracer
) -> None:
    base, steps = bases("stories260K"), batches_of(shakespeare, count)
    adapter = initial_adapter(spec(base, RANK), seed=0)
    training = Training(batch_size=ROWS, learning_rate=0.1)
    traces = {
        method: our_losses(base, method, adapter, steps, training, tracer, update="sgd") for method in ("mebp", "mesp")
    }
    expected = reference_losses(base, adapter, steps, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    assert expected[-1] < expected[0] - 0.1  # it does learn, so the traces say something
    np.testing.assert_allclose(traces["mebp"], traces["mesp"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(traces["mesp"], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.slow  # the one below has AdamW too
def test_adamw_follows_torch(bases: Bases, shakespeare: list[int], tracer: Tracer) -> None:
    base, steps = bases("stories260K"), batches_of(shakespeare, MANY)
    adapter = initial_adapter(spec(base, RANK), seed=0)
    training = Training(batch_size=ROWS, learning_rate=2e-3)
    found = our_losses(base, "mesp", adapter, steps, training, tracer, weight_decay=0.1)
    expected = reference_losses(
        base, adapter, steps, lambda parameters: torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.1)
    )
    assert expected[-1] < expected[0] - 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@FEW_OR_MANY
def test_accumulation_clipping_and_cosine_follow_torch(count: int, bases: Bases, tracer: Tracer) -> None:
    """Micro-batches with different numbers of trained tokens: their sum is one big batch, not a mean of means."""
    base, rank, peak = bases("qwen2"), 3, 5e-3
    adapter = random_adapter(spec(base, rank))
    batches = [random_batch(base.config, 7, rows=3, seed=seed) for seed in range(7)]
    steps = [[batches[number % 7], batches[(3 * number + 1) % 7]] for number in range(count)]
    clip = 0.5
    training = Training(batch_size=3, accumulation=2, clip_norm=clip, learning_rate=peak, schedule="cosine")
    found = our_losses(base, "mesp", adapter, steps, training, tracer, rank=rank)
    expected = reference_losses(
        base,
        adapter,
        steps,
        lambda parameters: torch.optim.AdamW(parameters, lr=peak, weight_decay=0.0),
        rank=rank,
        clip_norm=clip,
        scheduler=lambda rule: torch.optim.lr_scheduler.CosineAnnealingLR(rule, T_max=count),
    )
    assert (
        expected[-1 - (count - 1) % 7] < expected[0] - 0.1
    )  # steps 1 and 50, of the few 1 and 15, have the same batches
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
