# SPDX-License-Identifier: Apache-2.0
"""P-RGE: batched queries and signs give what passes one after the other give, and both give what transformers and peft give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bespoke import plugins
from bespoke.config import Training
from bespoke.graph.trace import Tracer
from bespoke.methods.update import copy
from bespoke.plan.instructions import Named
from bespoke.reference.interpreter import Bindings
from tests.gradients.eager import EagerBuilder, doubles
from tests.gradients.exact_reference import ExactReference, direction, eager
from tests.gradients.harness import LARGEST, Base, Bases, random_adapter, random_batch, spec
from tests.gradients.losses import along_b, losses_at
from tests.gradients.prge_steps import EPSILON, LENGTH, MODES, RANK, RATE, ROWS, SEED, SETTINGS, STEPS, planned
from tests.support.checks import few_of, few_rows_of

SEQUENTIAL = MODES[0]
# Rows of a tile: part of a path, a path, some paths and not all, everything.
TILES = ({"path_tile": 5}, {"path_tile": LENGTH * 3}, {"path_tile": 3 * LENGTH * 3}, {"path_tile": 10_000})


EACH_MODE = [("qwen2", "normal", "B"), ("gemma3_text", "rademacher", "both")]


@pytest.mark.parametrize(("name", "distribution", "train"), few_rows_of(EACH_MODE, (0,)))
def test_each_mode_estimates_what_two_direct_losses_say(name: str, distribution: Any, train: Any, bases: Bases) -> None:
    base, batch, queries = bases(name), random_batch(bases(name).config, LENGTH), 3
    adapter = random_adapter(spec(base, RANK))
    expected = [direct(base, adapter, batch, query, distribution, train) for query in range(queries)]
    options = {"epsilon": EPSILON, "queries": queries, "distribution": distribution}
    for mode, tiles in [*((mode, TILES[0]) for mode in MODES), *((MODES[-1], tiles) for tiles in TILES[1:])]:
        b = eager(
            base,
            "prge",
            RANK,
            batch,
            doubles(adapter),
            Training(batch_size=3),
            options | mode,
            {"query_tile": 5, "mlp_slice": 32, "head_chunk": 17, **tiles},
            train,
            epsilon=EPSILON,
            learning_rate=RATE,
        )
        assert b.recorded == pytest.approx([(plus - minus) / (2 * EPSILON) for plus, minus in expected], rel=1e-9)
        assert b.metrics["loss"] == pytest.approx(np.mean(expected), rel=1e-12)
        z = [direction(base, RANK, query, distribution) for query in range(queries)]
        assert set(b.stored) == {piece for piece in adapter if train == "both" or piece.endswith("B")}
        for piece, new in b.stored.items():
            step = sum(g * along[piece].numpy() for g, along in zip(b.recorded, z, strict=True))
            np.testing.assert_allclose(new.numpy(), adapter[piece] - RATE / queries * step, rtol=0, atol=1e-12)


def direct(base: Base, adapter: Any, batch: Any, query: int, distribution: Any, train: str) -> list[float]:
    """L(theta + eps z) and L(theta - eps z) by transformers and peft, in float64."""
    reference, z, losses = (
        ExactReference(base, spec(base, RANK), adapter),
        direction(base, RANK, query, distribution),
        [],
    )
    for sign in (+1, -1):
        moved = {piece: sign * EPSILON * along * (train == "both" or piece.endswith("B")) for piece, along in z.items()}
        reference.set({piece: value + moved[piece] for piece, value in doubles(adapter).items()})
        with torch.no_grad():
            losses.append(float(reference.loss(batch)))
    return losses


def telling() -> Any:
    """prge, with the loss of every path among what is emitted."""

    class Telling(type(plugins.get("optimizer", "prge"))):  # type: ignore[misc]
        def losses(self, b: Any, model: Any, options: Any, paths: Any) -> Any:
            found = super().losses(b, model, options, paths)
            b.emit(**{f"loss_{query}_{sign}": b.call(copy, loss) for (query, sign), loss in found.items()})
            return found

    return Telling()


def of_paths(metrics: dict[str, float], queries: int) -> list[float]:
    return [metrics[f"loss_{query}_{sign}"] for query in range(queries) for sign in (1, -1)]


@pytest.mark.parametrize(("queries", "distribution"), few_rows_of(SETTINGS, (3,)))
def test_in_float64_each_mode_walks_along_direct_losses(queries: int, distribution: Any, bases: Bases) -> None:
    base, prge, steps = bases("qwen2"), telling(), 3
    adapter = random_adapter(spec(base, RANK))
    batches = [random_batch(base.config, LENGTH, seed=step) for step in range(1, steps + 1)]
    losses = [losses_at(base, adapter, batch) for batch in batches]
    for mode in MODES:
        options, theta = (
            prge.Options(epsilon=EPSILON, queries=queries, distribution=distribution, **mode),
            doubles(adapter),
        )
        for step, (batch, loss) in enumerate(zip(batches, losses, strict=True), 1):
            b = EagerBuilder(
                base,
                spec(base, RANK, train="B"),
                Training(batch_size=3),
                batch,
                theta,
                {"learning_rate": RATE, "epsilon": EPSILON},
                {"query_tile": 5, "mlp_slice": 32, "head_chunk": 17, **TILES[0]},
                SEED,
                step,
            )
            prge.train_step(b, b.model, options)
            z = [along_b(base, query, distribution, step) for query in range(queries)]
            expected = [
                loss({p: v + sign * EPSILON * one[p] for p, v in theta.items()}) for one in z for sign in (1, -1)
            ]
            assert of_paths(b.metrics, queries) == pytest.approx(expected, rel=1e-12)  # type: ignore[arg-type]
            g = [(plus - minus) / (2 * EPSILON) for plus, minus in zip(expected[::2], expected[1::2], strict=True)]
            assert b.recorded == pytest.approx(g, rel=1e-9)
            for piece, new in b.stored.items():
                way = sum(of * one[piece] for of, one in zip(g, z, strict=True))
                np.testing.assert_allclose(
                    new.numpy(), (theta[piece] - RATE / queries * way).numpy(), rtol=0, atol=1e-12
                )
            theta = theta | b.stored


@STEPS
@pytest.mark.parametrize("distribution", few_of(("normal", "rademacher"), ("normal",)))
def test_one_query_without_batching_is_mezo_to_the_bit(
    distribution: Any, steps: int, bases: Bases, tracer: Tracer
) -> None:
    base = bases("llama")
    adapter = random_adapter(spec(base, RANK))
    options = {"queries": 1, "distribution": distribution}
    ours = planned(base, tracer, adapter, "prge", **options, **SEQUENTIAL)
    mezo = planned(base, tracer, adapter, "mezo", **options)
    for step in range(1, steps + 1):
        batch = random_batch(base.config, LENGTH, rows=ROWS, seed=step)
        one, other = (machine.step([batch], step=step, lr=RATE, seed=SEED) for machine in (ours, mezo))
        assert (one.recorded, one.metrics) == (other.recorded, other.metrics)
    for piece, value in ours.buffers.current.items():
        assert torch.equal(value, mezo.buffers.current[piece])
        assert not np.array_equal(value.numpy(), adapter[piece])


@STEPS
@pytest.mark.parametrize(("queries", "distribution"), few_rows_of(SETTINGS, (0,)))
def test_batched_passes_give_the_losses_of_sequential_ones(
    queries: int, distribution: Any, steps: int, bases: Bases, tracer: Tracer
) -> None:
    base = bases("llama")
    adapter = random_adapter(spec(base, RANK))
    options = {"queries": queries, "distribution": distribution}
    sequential = planned(base, tracer, adapter, telling(), **options, **SEQUENTIAL)
    # With the smallest tiles each path would be computed by itself.
    batched = [planned(base, tracer, adapter, telling(), LARGEST, **options, **mode) for mode in MODES[1:]]
    worst_loss = worst_g = 0.0
    for step in range(1, steps + 1):
        here = {piece: value.numpy().copy() for piece, value in sequential.buffers.current.items()}
        batch = random_batch(base.config, LENGTH, rows=ROWS, seed=step)
        wanted = sequential.step([batch], step=step, lr=RATE, seed=SEED)
        for machine in batched:
            machine.buffers.fill(here)  # the same adapter for all: rounding in earlier steps is no error of this one
            got = machine.step([batch], step=step, lr=RATE, seed=SEED)
            pairs = zip(of_paths(got.metrics, queries), of_paths(wanted.metrics, queries), strict=True)
            worst_loss = max(worst_loss, *(abs(one / other - 1) for one, other in pairs))
            worst_g = max(worst_g, *(abs(g - w) for g, w in zip(got.recorded, wanted.recorded, strict=True)))
    print(f"\n| {queries}, {distribution} | a loss off by {worst_loss:.1e} | g by {worst_g:.1e}, eps {EPSILON:g}")
    assert worst_loss <= 1e-6
    assert worst_g <= 2e-6 / EPSILON


def test_a_step_replays_from_its_journal_and_keeps_no_copies(bases: Bases, tracer: Tracer) -> None:
    base = bases("llama")
    adapter = random_adapter(spec(base, RANK))
    run, replayed = (planned(base, tracer, adapter, "prge", queries=2) for _ in range(2))
    assert run.plan.replayable
    stored = [value for value in run.plan.values if value.lifetime == "state"]
    assert {value.place.name for value in stored if isinstance(value.place, Named)} == {
        p for p in adapter if p.endswith("B")
    }
    for step in (1, 2, 3):
        outcome = run.step([random_batch(base.config, LENGTH, rows=ROWS, seed=step)], step=step, lr=RATE, seed=SEED)
        assert len(outcome.recorded) == 2
        scalars = {"learning_rate": RATE, "step": float(step), "batch_tokens": 1.0, "epsilon": EPSILON}
        replayed.interpreter.replay(Bindings({}, scalars, SEED, step), outcome.recorded)
        replayed.buffers.flip()
    for piece, value in run.buffers.current.items():
        assert torch.equal(value, replayed.buffers.current[piece])
