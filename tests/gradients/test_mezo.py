# SPDX-License-Identifier: Apache-2.0
"""MeZO through the plan: g against two losses computed directly, the step against its formula, and replay from the journal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bespoke.config import Training
from bespoke.graph.trace import Tracer
from bespoke.reference.interpreter import Bindings
from tests.gradients.exact_reference import direction
from tests.gradients.harness import Bases, Reference, random_adapter, random_batch, rig, spec
from tests.support.checks import few_of, few_rows_of

SEED = 5
RANK = 3


@pytest.mark.parametrize(
    ("name", "epsilon", "distribution"),
    few_rows_of(
        [("stories260K", 1e-2, "normal"), ("qwen3", 1e-3, "rademacher"), ("gemma3_text", 1e-3, "normal")], (0, 1)
    ),
)
def test_projected_gradient_is_that_of_a_direct_computation(
    name: str, epsilon: float, distribution: str, bases: Bases, tracer: Tracer
) -> None:
    base, batch = bases(name), random_batch(bases(name).config, 33)
    options = {"epsilon": epsilon, "queries": 2, "distribution": distribution}
    machine = rig(base, "mezo", 33, RANK, tracer, training=Training(batch_size=3), options=options)
    adapter = random_adapter(spec(base, RANK))
    machine.buffers.fill(adapter)
    outcome = machine.step([batch], step=1, lr=0.0, seed=SEED)
    reference = Reference(base, spec(base, RANK), adapter, torch.float32)
    directly = []
    for query in range(2):
        z = direction(base, RANK, query, distribution, seed=SEED)
        losses = []
        for sign in (+1, -1):
            step = np.float32(sign * epsilon)
            reference.set(
                {piece: value + step * z[piece].numpy().astype(np.float32) for piece, value in adapter.items()}
            )
            with torch.no_grad():
                losses.append(float(reference.loss(batch)))
        directly.append((losses[0] - losses[1]) / (2 * epsilon))
    np.testing.assert_allclose(outcome.recorded, directly, rtol=0, atol=2e-6 / epsilon)


@pytest.mark.parametrize("distribution", few_of(("normal", "rademacher"), ("normal",)))
def test_journal_replays_to_the_same_adapter_bit_for_bit(distribution: Any, bases: Bases, tracer: Tracer) -> None:
    base, batch, rate = bases("llama"), random_batch(bases("llama").config, 7), 1e-3
    options = {"epsilon": 1e-3, "queries": 2, "distribution": distribution}
    adapter = random_adapter(spec(base, RANK))
    machines = [rig(base, "mezo", 7, RANK, tracer, training=Training(batch_size=3), options=options) for _ in range(2)]
    for machine in machines:
        machine.buffers.fill(adapter)
    run, replayed = machines
    assert run.plan.replayable
    journal = [run.step([batch], step=step, lr=rate, seed=SEED).recorded for step in range(1, 6)]

    expected = {name: value.astype(np.float64) for name, value in adapter.items()}
    for step, recorded in enumerate(journal, 1):
        scalars = {"learning_rate": rate, "step": float(step), "batch_tokens": 1.0, "epsilon": 1e-3}
        replayed.interpreter.replay(Bindings({}, scalars, SEED, step), recorded)
        replayed.buffers.flip()
        for query, g in enumerate(recorded):
            z = direction(base, RANK, query, distribution, seed=SEED, step=step)
            for name in expected:
                expected[name] -= rate / 2 * g * z[name].numpy()

    for name, value in run.buffers.current.items():
        assert torch.equal(value, replayed.buffers.current[name])
        assert not np.array_equal(value.numpy(), adapter[name])
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-6, atol=1e-6)


def test_a_plan_that_is_not_replayable_says_so(bases: Bases, tracer: Tracer) -> None:
    machine = rig(bases("llama"), "mesp", 7, RANK, tracer, training=Training(batch_size=3))
    assert not machine.plan.replayable
