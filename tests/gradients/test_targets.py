# SPDX-License-Identifier: Apache-2.0
"""Adapters on some linears only: the gradients of transformers and peft with the same `target_modules`, and nothing else trained.

In float64 they are those of the formulas; through plans, those of the graphs that are traced, planned and run.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from bespoke import plugins
from bespoke.config import Linear, Training
from bespoke.graph.trace import Tracer
from bespoke.plan.instructions import Call, Plan
from tests.gradients.eager import EagerBuilder, doubles
from tests.gradients.exact_reference import GRADIENT_TOLERANCE, KEEPING, TILES, ExactReference
from tests.gradients.harness import (
    LARGEST,
    LOSS_TOLERANCE,
    SOME_KEPT,
    TINY_TILES,
    TOLERANCE,
    Base,
    Bases,
    Reference,
    Tiles,
    planned,
    random_adapter,
    random_batch,
    rig,
    spec,
    worst_error,
)
from tests.support.checks import few_rows_of

RANK, LENGTH, ROWS = 3, 17, 3
CHOSEN: tuple[tuple[Linear, ...], ...] = (
    ("q_proj", "v_proj"),
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("gate_proj", "up_proj", "down_proj"),
    ("down_proj",),
    ("o_proj", "gate_proj"),
)


@pytest.mark.parametrize(
    ("name", "linears"),
    few_rows_of(list(itertools.product(("llama", "gemma3_text"), CHOSEN)), (0, 8)),
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_gradients_are_those_of_peft_with_the_same_target_modules(
    name: str, linears: tuple[Linear, ...], bases: Bases
) -> None:
    base, batch = bases(name), random_batch(bases(name).config, LENGTH)
    model = spec(base, RANK, linears)
    adapter = random_adapter(model)
    reference_loss, expected = ExactReference(base, model, adapter).gradients(batch)
    assert {piece.split(".")[1] for piece in expected} == set(linears)
    for method, tiles in (("mebp", TILES), ("mesp", TILES), ("mesp", KEEPING)):
        training = Training(batch_size=ROWS, accumulation=2)
        b = EagerBuilder(base, model, training, batch, doubles(adapter), {"learning_rate": 0.0}, tiles)
        plugin = plugins.get("optimizer", method)
        plugin.train_step(b, model, plugin.Options())  # type: ignore[arg-type]
        assert b.metrics["loss"] == pytest.approx(reference_loss, rel=1e-12)
        assert b.sums.keys() == expected.keys()
        for piece, reference in expected.items():
            error = np.linalg.norm(b.sums[piece].tensor.numpy() - reference) / np.linalg.norm(reference)
            assert error <= GRADIENT_TOLERANCE, f"{method}, {tiles}, {piece}"


THROUGH_PLANS: tuple[tuple[str, tuple[Linear, ...], Tiles], ...] = (
    ("llama", CHOSEN[0], LARGEST),
    ("llama", CHOSEN[1], TINY_TILES),
    ("llama", CHOSEN[2], SOME_KEPT),
    ("llama", CHOSEN[3], LARGEST),
    ("gemma3_text", CHOSEN[4], SOME_KEPT),
)


@pytest.mark.parametrize(("name", "linears", "tiles"), few_rows_of(THROUGH_PLANS, (3,)))
def test_plans_give_the_gradients_of_peft_with_the_same_target_modules(
    name: str, linears: tuple[Linear, ...], tiles: Tiles, bases: Bases, tracer: Tracer
) -> None:
    base, batch = bases(name), random_batch(bases(name).config, LENGTH)
    model = spec(base, RANK, linears)
    adapter = random_adapter(model)
    reference_loss, expected = Reference(base, model, adapter).gradients(batch)
    for method in ("mebp", "mesp"):
        machine = rig(base, method, LENGTH, RANK, tracer, tiles=tiles, linears=linears)
        assert set(machine.buffers.current) >= set(adapter)
        loss, gradients = machine.gradients(adapter, batch)
        error, where = worst_error(gradients, expected)
        assert error <= TOLERANCE, f"{method}: {where} is off by {error:.2e}"
        assert loss == pytest.approx(reference_loss, rel=LOSS_TOLERANCE)


@pytest.mark.slow
def test_evaluation_is_that_of_peft_with_the_same_target_modules(bases: Bases, tracer: Tracer) -> None:
    base, linears = bases("gemma3_text"), CHOSEN[4]
    batch, model = random_batch(base.config, LENGTH), spec(base, RANK, linears)
    adapter = random_adapter(model)
    machine = rig(base, "mesp", LENGTH, RANK, tracer, tiles=TINY_TILES, answers=True, linears=linears)
    machine.buffers.fill(adapter)
    with torch.no_grad():
        loss = float(Reference(base, model, adapter).loss(batch))
    assert machine.run("evaluate_step", batch).metrics["loss_sum"] == pytest.approx(loss * batch.trained, rel=1e-6)


def graphs_called(plan: Plan) -> list[str]:
    code = [i for section in plan.sections.values() for i in section]
    return [plan.graphs[i.graph].name for i in code if isinstance(i, Call)]


@pytest.mark.parametrize(
    ("linears", "of_outputs", "of_inputs"),
    [(CHOSEN[0], 0, 0), (("o_proj",), 0, 1), (("down_proj",), 1, 1)],
)
def test_mesp_goes_back_no_further_than_the_first_adapter(
    linears: tuple[Linear, ...], of_outputs: int, of_inputs: int, bases: Bases, tracer: Tracer
) -> None:
    """How many blocks fewer than all have a backward pass of the output projection, of attention and of its inputs."""
    base = bases("llama")
    plan = planned(spec(base, RANK, linears), "mesp", LENGTH, Training(batch_size=ROWS), tracer, tiles=LARGEST)
    called, blocks = graphs_called(plan), base.config.num_layers
    assert called.count("output_backward") == blocks - of_outputs
    assert called.count("qkv_backward") == blocks - of_inputs
    assert called.count("tile_backward") % (blocks - of_inputs) == 0


def flops(base: Base, tracer: Tracer, linears: tuple[Linear, ...]) -> dict[str, int]:
    plan = planned(spec(base, 16, linears), "mesp", LENGTH, Training(batch_size=ROWS), tracer, tiles=LARGEST)
    return {graph.name: tracer.graphs[graph.key].flops for graph in plan.graphs}


@pytest.mark.slow
def test_what_no_adapter_needs_is_not_computed(bases: Bases, tracer: Tracer) -> None:
    base = bases("llama")
    every = flops(base, tracer, CHOSEN[1] + CHOSEN[2])
    attention, mlp = flops(base, tracer, CHOSEN[1]), flops(base, tracer, CHOSEN[2])
    for name in ("mlp_slice", "mlp_slice_backward"):
        assert attention[name] < mlp[name] == every[name]
    assert "mlp_branch" not in attention
    for name in ("attention_inputs", "attention_output", "output_backward"):
        assert mlp[name] < attention[name] == every[name]
