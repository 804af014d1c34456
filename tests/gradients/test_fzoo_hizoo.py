# SPDX-License-Identifier: Apache-2.0
"""FZOO and HiZOO against their formulas in plain torch, over losses of transformers and peft in float64; and fp32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bespoke import plugins
from bespoke.compiler.request import Method
from bespoke.config import Training
from bespoke.errors import PlanError
from bespoke.graph.trace import Tracer
from bespoke.reference.interpreter import Bindings
from tests.gradients.eager import EagerBuilder, Tensors, doubles
from tests.gradients.harness import Base, Bases, Rig, random_adapter, random_batch, rig, spec
from tests.gradients.losses import RANK, SEED, STEPS, along_b, losses_at
from tests.support.checks import few_of, few_rows_of

TILES = {"query_tile": 5, "mlp_slice": 32, "head_chunk": 17, "path_tile": 25}


def written(
    base: Base, method: str, adapter: Any, batch: Any, options: dict[str, Any], rate: float
) -> list[EagerBuilder]:
    """The builders after each step, by the plugin's own code in float64."""
    plugin, state, states, found = plugins.get("optimizer", method), doubles(adapter), {}, []
    for step in range(1, STEPS + 1):
        scalars = {"learning_rate": rate, **Method(method, plugin, plugin.Options(**options), Training()).scalars}
        b = EagerBuilder(
            base, spec(base, RANK, train="B"), Training(batch_size=3), batch, state, scalars, TILES, SEED, step, states
        )
        plugin.train_step(b, b.model, plugin.Options(**options))
        found.append(b)
        state = state | {name: new for name, new in b.stored.items() if name in state}
        states = {name: new for name, new in b.stored.items() if name not in state}
    return found


def agree(b: EagerBuilder, recorded: list[float], loss: float, now: Tensors) -> None:
    assert b.recorded == pytest.approx(recorded, rel=1e-8)
    assert b.metrics["loss"] == pytest.approx(loss, rel=1e-12)
    for piece, new in b.stored.items():
        if piece in now:
            np.testing.assert_allclose(new.numpy(), now[piece].numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("distribution", few_of(("rademacher", "normal"), ("rademacher",)))
def test_fzoo_divides_one_sided_differences_by_their_spread(distribution: str, bases: Bases) -> None:
    base, batch = bases("qwen2"), random_batch(bases("qwen2").config, 9)
    adapter, epsilon, count, rate = random_adapter(spec(base, RANK)), 1e-3, 4, 1e-5
    options = {"epsilon": epsilon, "queries": count, "distribution": distribution}
    steps = written(base, "fzoo", adapter, batch, options, rate)
    loss, theta = losses_at(base, adapter, batch), doubles(adapter)
    for step, b in enumerate(steps, 1):
        u = [along_b(base, query, distribution, step) for query in range(count)]
        here = loss(theta)
        there = [loss({piece: value + epsilon * one[piece] for piece, value in theta.items()}) for one in u]
        sigma = torch.tensor(there, dtype=torch.float64).std()
        g = [(one - here) / (epsilon * float(sigma)) for one in there]
        way = {piece: sum(of * one[piece] for of, one in zip(g, u, strict=True)) for piece in theta}
        theta = {piece: value - rate / count * way[piece] for piece, value in theta.items()}
        agree(b, g, here, theta)


def test_hizoo_scales_its_directions_by_a_running_estimate_of_curvature(bases: Bases) -> None:
    base, batch = bases("gemma3_text"), random_batch(bases("gemma3_text").config, 9)
    adapter, epsilon, w, rate = random_adapter(spec(base, RANK)), 1e-2, 1e-2, 1e-4
    steps = written(base, "hizoo", adapter, batch, {"epsilon": epsilon, "smoothing": w}, rate)
    loss, theta = losses_at(base, adapter, batch), doubles(adapter)
    h = {piece: torch.ones_like(value) for piece, value in theta.items()}
    for step, b in enumerate(steps, 1):
        z = along_b(base, 0, "normal", step)
        here = loss(theta)
        plus, minus = (
            loss({piece: value + sign * epsilon * z[piece] / h[piece].sqrt() for piece, value in theta.items()})
            for sign in (1, -1)
        )
        g, c = (plus - minus) / (2 * epsilon), abs(plus + minus - 2 * here) / (2 * epsilon**2)
        h = {piece: torch.clamp((1 - w) * old + w * c * old * z[piece] ** 2, min=2**-24) for piece, old in h.items()}
        theta = {piece: value - rate * g * z[piece] / h[piece].sqrt() for piece, value in theta.items()}
        agree(b, [g, c], here, theta)
        for piece, new in ((name, new) for name, new in b.stored.items() if name.endswith(".h")):
            np.testing.assert_allclose(1 + new.numpy(), h[piece.removesuffix(".h")].numpy(), rtol=1e-9)


def test_a_number_that_a_direct_step_lacks_is_named(bases: Bases) -> None:
    base, plugin = bases("llama"), plugins.get("optimizer", "hizoo")
    adapter, batch = random_adapter(spec(base, RANK)), random_batch(base.config, 7)
    scalars = {"learning_rate": 1e-6, "epsilon": 1e-2}
    b = EagerBuilder(
        base, spec(base, RANK, train="B"), Training(batch_size=3), batch, doubles(adapter), scalars, TILES, SEED, 1
    )
    with pytest.raises(PlanError) as caught:
        plugin.train_step(b, b.model, plugin.Options())
    assert (caught.value.subject, caught.value.got) == ("Scalar 'smoothing'", "a number that is not given")
    assert caught.value.expected == "one of batch_tokens, epsilon, learning_rate, step"
    assert "Give 'option.smoothing'" in caught.value.next_step


def machine(base: Base, tracer: Tracer, method: str, adapter: Any, **options: Any) -> Rig:
    made = rig(base, method, 7, RANK, tracer, training=Training(batch_size=2), options=options, adapter=adapter)
    made.buffers.fill(adapter)
    return made


def test_a_share_that_fp32_cannot_take_from_1_still_moves_h(bases: Bases, tracer: Tracer) -> None:
    base, w = bases("llama"), 1e-8
    assert np.float32(1) - np.float32(w) == 1
    adapter = random_adapter(spec(base, RANK))
    made = machine(base, tracer, "hizoo", adapter, epsilon=1e-2, smoothing=w)
    _, c = made.step([random_batch(base.config, 7, rows=2)], step=1, lr=0.0, seed=SEED).recorded
    z = along_b(base, 0, "normal", 1)
    for piece in (name for name in adapter if name.endswith("lora_B")):
        moved = made.buffers.current[f"{piece}.h"].double().numpy()
        np.testing.assert_allclose(moved, w * (c * z[piece].numpy() ** 2 - 1), rtol=1e-5, atol=1e-14)


def test_where_no_curvature_is_measured_h_stays_above_zero(bases: Bases, tracer: Tracer) -> None:
    """It halves in each step until it is the least that fp32 can hold one less of."""
    base = bases("llama")
    adapter = random_adapter(spec(base, RANK))
    made = machine(base, tracer, "hizoo", adapter, epsilon=1e-2, smoothing=0.5)
    for step in range(1, 31):
        scalars = {"learning_rate": 1e-6, "step": float(step), "batch_tokens": 1.0, **made.scalars}
        made.interpreter.replay(Bindings({}, scalars, SEED, step), [1.0, 0.0])  # g and c
        made.buffers.flip()
    for name, value in made.buffers.current.items():
        assert torch.isfinite(value).all()
        if name.endswith(".h"):
            assert torch.equal(1 + value, torch.full_like(value, 2**-24))


def test_losses_that_differ_by_rounding_alone_make_no_step_of_full_length(bases: Bases, tracer: Tracer) -> None:
    base, rate, epsilon = bases("llama"), 1e-6, 1e-9  # so small that theta + eps u is theta in fp32
    adapter = {piece: value + np.float32(1) for piece, value in random_adapter(spec(base, RANK)).items()}
    for given, rounding in (({}, 1e-6), ({"loss_rounding": 2e-3}, 2e-3)):
        made = machine(base, tracer, "fzoo", adapter, epsilon=epsilon, queries=4, **given)
        outcome = made.step([random_batch(base.config, 7, rows=2)], step=1, lr=rate, seed=SEED)
        assert outcome.metrics["spread"] == pytest.approx(rounding * max(1.0, outcome.metrics["loss"]), rel=1e-6)
        assert all(np.isfinite(g) and abs(g) < 1 / epsilon for g in outcome.recorded)


@pytest.mark.parametrize(("method", "numbers"), few_rows_of([("fzoo", 4), ("hizoo", 2)], (0,)))
def test_steps_replay_from_their_journal_to_the_bit(method: str, numbers: int, bases: Bases, tracer: Tracer) -> None:
    base = bases("llama")
    adapter = random_adapter(spec(base, RANK))
    options = {"fzoo": {"queries": 4}, "hizoo": {"smoothing": 1e-2, "epsilon": 1e-2}}[method]
    run, replayed = (machine(base, tracer, method, adapter, **options) for _ in range(2))
    assert run.plan.replayable
    for step in range(1, STEPS + 1):
        outcome = run.step([random_batch(base.config, 7, rows=2, seed=step)], step=step, lr=1e-6, seed=SEED)
        assert len(outcome.recorded) == numbers
        scalars = {"learning_rate": 1e-6, "step": float(step), "batch_tokens": 1.0, **run.scalars}
        replayed.interpreter.replay(Bindings({}, scalars, SEED, step), outcome.recorded)
        replayed.buffers.flip()
    for piece, value in run.buffers.current.items():
        assert torch.equal(value, replayed.buffers.current[piece])
