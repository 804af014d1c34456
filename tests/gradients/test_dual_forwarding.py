# SPDX-License-Identifier: Apache-2.0
"""P-RGE's Algorithm 2: what section `finish` makes of a trailing state is what steps that do not trail come to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bespoke import plugins
from bespoke.config import Training
from bespoke.graph.trace import Tracer
from bespoke.plan.instructions import Named
from bespoke.reference.interpreter import Bindings
from tests.gradients.eager import EagerBuilder, Tensors, doubles
from tests.gradients.harness import Bases, Rig, random_adapter, random_batch, spec
from tests.gradients.losses import along_b, losses_at
from tests.gradients.prge_steps import EPSILON, LENGTH, MODES, RANK, ROWS, SEED, SETTINGS, STEPS, planned
from tests.support.checks import few_rows_of

TILES = {"query_tile": 5, "mlp_slice": 32, "head_chunk": 17, "path_tile": 25}
RATES = (
    1e-3,
    3e-3,
    1e-4,
    2e-3,
)  # a different rate for each step: an update takes the rate of the step that computed its g


@pytest.mark.parametrize(
    ("name", "queries", "mode", "distribution"),
    few_rows_of(
        [
            ("qwen2", 1, MODES[-1], "normal"),
            ("gemma3_text", 3, MODES[-1], "rademacher"),
            ("llama", 3, MODES[1], "normal"),
        ],
        (0, 2),
    ),
)
def test_in_float64_it_is_the_walk_of_direct_losses(
    name: str, queries: int, mode: dict[str, bool], distribution: str, bases: Bases
) -> None:
    base, batch = bases(name), random_batch(bases(name).config, LENGTH)
    adapter = random_adapter(spec(base, RANK))
    prge, loss, theta = plugins.get("optimizer", "prge"), losses_at(base, adapter, batch), doubles(adapter)
    options = prge.Options(epsilon=EPSILON, queries=queries, distribution=distribution, dual_forwarding=True, **mode)
    states: Tensors = {}
    for step, rate in enumerate((*RATES, 0.0), 1):
        scalars = {"learning_rate": rate, "epsilon": EPSILON}
        b = EagerBuilder(
            base,
            spec(base, RANK, train="B"),
            Training(batch_size=3),
            batch,
            doubles(adapter),
            scalars,
            TILES,
            SEED,
            step,
            states=states,
        )
        prge.train_step(b, b.model, options)  # type: ignore[arg-type]
        for piece in adapter:
            if piece.endswith("B"):  # what the steps before this one come to
                np.testing.assert_allclose(b.finished[piece].numpy(), theta[piece].numpy(), rtol=0, atol=1e-12)
        z = [along_b(base, query, distribution, step) for query in range(queries)]
        g = []
        for one in z:
            plus, minus = (loss({p: v + sign * EPSILON * one[p] for p, v in theta.items()}) for sign in (1, -1))
            g.append((plus - minus) / (2 * EPSILON))
        assert b.recorded == pytest.approx(g, rel=1e-9)
        way = {p: sum(of * one[p] for of, one in zip(b.recorded, z, strict=True)) for p in theta}
        theta = {p: value - rate / queries * way[p] for p, value in theta.items()}
        states = b.stored


BOTH, OUTER, INNER = MODES[-1], MODES[2], MODES[1]
# With one query there are no others to batch it with: outer alone is a pass for each sign, and inner alone is both.
WALKS = [(*setting, BOTH) for setting in SETTINGS] + [(4, "normal", OUTER), (4, "rademacher", INNER)]


@STEPS
@pytest.mark.parametrize(("queries", "distribution", "mode"), few_rows_of(WALKS, (0,)))
def test_in_fp32_it_comes_to_the_adapter_of_the_regenerating_mode(
    queries: int, distribution: Any, mode: dict[str, bool], steps: int, bases: Bases, tracer: Tracer
) -> None:
    base = bases("llama")
    adapter = random_adapter(spec(base, RANK))
    options = {"queries": queries, "distribution": distribution, **mode}
    trailing = planned(base, tracer, adapter, "prge", **options, dual_forwarding=True)
    plain = planned(base, tracer, adapter, "prge", **options)
    for step in range(1, steps + 1):
        batch = random_batch(base.config, LENGTH, rows=ROWS, seed=step)
        for machine in (trailing, plain):
            machine.step([batch], step=step, lr=RATES[step % len(RATES)], seed=SEED)
    trailing.run("finish", None)
    worst = max(
        float((finished - plain.buffers.current[piece]).abs().max())
        for piece, finished in trailing.buffers.finished.items()
    )
    moved = max(float(np.abs(value.numpy() - adapter[piece]).max()) for piece, value in plain.buffers.current.items())
    print(f"\n| {queries}, {distribution}, {mode}, {steps} steps | {worst:.1e} apart | {moved:.1e} moved")
    assert worst <= 1e-5 < moved / 10


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "distribution"), SETTINGS)
def test_in_float64_a_hundred_steps_come_to_the_adapter_of_the_regenerating_mode(
    queries: int, distribution: Any, bases: Bases
) -> None:
    base, prge, worst = bases("qwen2"), plugins.get("optimizer", "prge"), 0.0
    adapter = random_adapter(spec(base, RANK))
    start, theta, states = doubles(adapter), doubles(adapter), Tensors()
    options = {"epsilon": EPSILON, "queries": queries, "distribution": distribution}
    for step in range(1, 102):  # a step says what those before it come to
        batch = random_batch(base.config, LENGTH, seed=step)
        scalars = {"learning_rate": RATES[step % len(RATES)], "epsilon": EPSILON}
        trailing, plain = (
            EagerBuilder(
                base,
                spec(base, RANK, train="B"),
                Training(batch_size=3),
                batch,
                at,
                scalars,
                TILES,
                SEED,
                step,
                states=kept,
            )
            for at, kept in ((start, states), (theta, None))
        )
        for b, dual in ((trailing, True), (plain, False)):
            prge.train_step(b, b.model, prge.Options(**options, dual_forwarding=dual))  # type: ignore[arg-type]
        worst = max(
            worst, *(float((trailing.finished[piece] - theta[piece]).abs().max()) for piece in trailing.finished)
        )
        theta, states = theta | plain.stored, trailing.stored
    moved = max(float((theta[piece] - start[piece]).abs().max()) for piece in start)
    print(f"\n| {queries}, {distribution}, float64 | {worst:.1e} apart | {moved:.1e} moved")
    assert worst <= 1e-12 < moved / 10


def test_finishing_changes_no_state_and_a_step_replays_to_the_bit(bases: Bases, tracer: Tracer) -> None:
    base = bases("llama")
    adapter = random_adapter(spec(base, RANK))
    run, replayed = (planned(base, tracer, adapter, "prge", queries=2, dual_forwarding=True) for _ in range(2))
    assert run.plan.replayable
    assert run.plan.version == [1, 1]
    assert planned(base, tracer, adapter, "prge", queries=2).plan.version == [1, 0]
    pieces = {piece for piece in adapter if piece.endswith("B")}
    assert finished(run, pieces) == {piece: adapter[piece].tobytes() for piece in pieces}  # before the first step
    for step in (1, 2, 3):
        outcome = run.step(
            [random_batch(base.config, LENGTH, rows=ROWS, seed=step)], step=step, lr=RATES[step], seed=SEED
        )
        scalars = {"learning_rate": RATES[step], "step": float(step), "batch_tokens": 1.0, "epsilon": EPSILON}
        replayed.interpreter.replay(Bindings({}, scalars, SEED, step), outcome.recorded)
        replayed.buffers.flip()
        before = {name: value.clone() for name, value in run.buffers.current.items()}
        once = finished(run, pieces)
        assert once == finished(run, pieces) == finished(replayed, pieces)
        for name, value in run.buffers.current.items():
            assert torch.equal(value, before[name])
            assert torch.equal(value, replayed.buffers.current[name])
        for piece in pieces:
            assert (
                run.buffers.current[piece].numpy().tobytes() == adapter[piece].tobytes()
            )  # it stands where the run began
            assert once[piece] != adapter[piece].tobytes()
    names = {
        value.place.name for value in run.plan.values if value.lifetime == "state" and isinstance(value.place, Named)
    }
    first = "block_00.q_proj.lora_B"
    sides = {f"{piece}.{side}_{query}" for piece in pieces for side in ("plus", "minus") for query in (0, 1)}
    assert names == pieces | sides | {f"{first}.g_0", f"{first}.g_1", f"{first}.rate"}


def finished(run: Rig, pieces: set[str]) -> dict[str, bytes]:
    run.run("finish", None)
    return {piece: run.buffers.finished[piece].numpy().tobytes() for piece in pieces}
