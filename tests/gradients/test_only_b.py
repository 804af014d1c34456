# SPDX-License-Identifier: Apache-2.0
"""Adapters whose B alone is trained (LoRA-FA): gradients of B are peft's; A is in no state, gradient or noise of any method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bespoke.config import Training
from bespoke.graph.trace import Tracer
from bespoke.plan.instructions import Named, Noise, Plan
from tests.gradients.exact_reference import direction
from tests.gradients.harness import (
    TINY_TILES,
    Bases,
    Reference,
    Tiles,
    random_adapter,
    random_batch,
    rig,
    spec,
    worst_error,
)
from tests.support.checks import few_rows_of

RANK = 3
SEED = 5


def named(plan: Plan, role: str) -> list[str]:
    return [value.place.name for value in plan.values if value.role == role and isinstance(value.place, Named)]


@pytest.mark.parametrize(
    ("name", "method", "tiles"),
    few_rows_of(
        [
            ("qwen2", "mesp", TINY_TILES),
            ("qwen2", "mebp", None),
            ("gemma3_text", "mesp", None),
            ("gemma3_text", "mebp", None),
        ],
        (0,),
    ),
)
def test_gradients_of_b_are_those_of_peft_and_there_are_no_others(
    name: str, method: str, tiles: Tiles | None, bases: Bases, tracer: Tracer
) -> None:
    base, batch = bases(name), random_batch(bases(name).config, 9)
    adapter = random_adapter(spec(base, RANK))
    loss, expected = Reference(base, spec(base, RANK), adapter).gradients(batch)
    machine = rig(base, method, 9, RANK, tracer, tiles=tiles, adapter=adapter)
    got, gradients = machine.gradients(adapter, batch)
    assert got == pytest.approx(loss, rel=1e-6)
    assert set(machine.buffers.step_values) == {f"{piece}.gradient" for piece in adapter if piece.endswith("lora_B")}
    error, where = worst_error(gradients, {piece: expected[piece] for piece in gradients})
    assert error <= 1e-5, f"{where} is off by {error:.2e}"


# What each keeps of a piece from step to step, and of the micro-batches of one.
KEPT: dict[str, tuple[set[str], set[str]]] = {
    "mesp": ({"m", "v"}, {"gradient"}),
    "mebp": ({"m", "v"}, {"gradient"}),
    "mezo": (set(), set()),
    "prge": (set(), set()),
    "fzoo": (set(), set()),
    "hizoo": ({"h"}, set()),
}


@pytest.mark.parametrize("method", KEPT)
def test_a_is_a_weight_of_the_adapters_file_and_in_no_state_gradient_or_noise(
    method: str, bases: Bases, tracer: Tracer
) -> None:
    base = bases("llama")
    adapter = random_adapter(spec(base, RANK))
    states, sums = KEPT[method]
    machine = rig(base, method, 7, RANK, tracer, training=Training(accumulation=2 if sums else 1), adapter=adapter)
    plan = machine.plan
    factors = {f"adapter.{piece}" for piece in adapter if piece.endswith("lora_A")}
    assert factors == {weight for weight in named(plan, "weight") if "lora_A" in weight}
    assert not [
        name for role in ("adapter", "optimizer", "temporary") for name in named(plan, role) if "lora_A" in name
    ]
    trained = {piece for piece in adapter if piece.endswith("lora_B")}
    assert set(named(plan, "adapter")) == trained
    assert set(machine.buffers.current) == trained | {f"{piece}.{kept}" for piece in trained for kept in states}
    assert set(machine.buffers.step_values) == {f"{piece}.{kept}" for piece in trained for kept in sums}
    drawn = {i.tensor for code in plan.sections.values() for i in code if isinstance(i, Noise)}
    assert all(tensor % 2 for tensor in drawn)  # A comes before B in each linear


def test_mezo_measures_along_b_alone(bases: Bases, tracer: Tracer) -> None:
    base, batch, epsilon = bases("llama"), random_batch(bases("llama").config, 9), 1e-2
    adapter = random_adapter(spec(base, RANK))
    machine = rig(
        base, "mezo", 9, RANK, tracer, training=Training(batch_size=3), options={"epsilon": epsilon}, adapter=adapter
    )
    machine.buffers.fill(adapter)
    (g,) = machine.step([batch], step=1, lr=1e-3, seed=SEED).recorded
    reference, losses = Reference(base, spec(base, RANK), adapter), []
    z = {
        piece: along * piece.endswith("lora_B")
        for piece, along in direction(base, RANK, 0, "normal", seed=SEED).items()
    }
    for sign in (+1, -1):
        reference.set(
            {piece: torch.from_numpy(value).double() + sign * epsilon * z[piece] for piece, value in adapter.items()}
        )
        with torch.no_grad():
            losses.append(float(reference.loss(batch)))
    assert g == pytest.approx((losses[0] - losses[1]) / (2 * epsilon), abs=2e-6 / epsilon)
    for piece, value in machine.buffers.current.items():
        np.testing.assert_allclose(value.numpy(), adapter[piece] - 1e-3 * g * z[piece].numpy(), rtol=0, atol=1e-6)
