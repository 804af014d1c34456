# SPDX-License-Identifier: Apache-2.0
"""A step means the same to both builders: one records it into a plan that an interpreter runs, the other computes it at once."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from bespoke.config import Settings
from bespoke.contracts import ModelSpec, StepBuilder
from bespoke.errors import PlanError
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.direct import DirectBuilder
from bespoke.graph.states import noise_counter
from bespoke.rules.noise import noise
from bespoke.testing.rig import SEED, Case, Rig, planned
from bespoke.testing.tiny import TokenBatch, tiny_adapter

CASE = Case.of("plain", 7, 2)
STEP = 3
PUBLIC = [name for name in vars(StepBuilder) if not name.startswith("_")]


class Weighing:
    """A step of arrays, noise of a tree, and zeros of two dtypes. It needs no weights."""

    name = "weighing"
    promises = None
    Options = Settings

    def train_step(self, b: StepBuilder, model: ModelSpec, options: Any) -> None:
        labels, shares = b.array("labels", "int64"), b.array("shares", "float32")
        counted = b.zeros(labels.shape, labels.dtype)
        b.call(torch.clone, labels, into=counted)
        total = b.zeros(())
        b.call(weighed, counted, shares, b.batch().mask, add_to=total)
        pieces = b.adapter(model.blocks[1])
        states = [b.state(pieces["v_proj.lora_B"], "walk"), b.state(pieces["q_proj.lora_A"], "few", (3,))]
        old = {"pieces": pieces, "states": states}
        b.store(old, b.call(added, old, b.noise(old, query=2, distribution="rademacher")))
        b.emit(loss=total)


def weighed(labels: torch.Tensor, shares: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (labels * shares * mask).sum()


def added(old: dict[str, Any], z: dict[str, Any]) -> dict[str, Any]:
    pieces = {name: piece + 0.5 * z["pieces"][name] for name, piece in old["pieces"].items()}
    return {
        "pieces": pieces,
        "states": [state + drawn for state, drawn in zip(old["states"], z["states"], strict=True)],
    }


def direct(batch: TokenBatch, dtype: torch.dtype, arrays: Mapping[str, torch.Tensor]) -> DirectBuilder:
    def drawn(name: str, shape: tuple[int, ...], query: int, distribution: Any) -> torch.Tensor:
        block, tensor = noise_counter(CASE.model, name, b.state_names)
        z = noise(shape, seed=SEED, step=STEP, query=query, block=block, tensor=tensor, distribution=distribution)
        return torch.from_numpy(z).to(dtype)

    b = DirectBuilder(
        CASE.model,
        CASE.training,
        batch.tokens,
        batch.targets,
        batch.mask.to(dtype),
        group=lambda group: {},
        adapter_tensors={name: torch.from_numpy(a).to(dtype) for name, a in tiny_adapter(CASE.model_name).items()},
        states={},
        numbers={},
        draw=drawn,
        arrays=arrays,
    )
    return b


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_builders_compute_the_same_step(dtype: torch.dtype) -> None:
    method, options = Weighing(), Settings()
    rig = Rig(CASE, planned(method, options, CASE), method, options)
    rig.buffers.fill(tiny_adapter(CASE.model_name))
    batch = rig.batch()
    loss = rig.step([batch], step=STEP, learning_rate=0.0).metrics["loss"]

    b = direct(batch, dtype, batch.arrays)
    method.train_step(b, CASE.model, options)
    assert float(b.metrics["loss"]) == pytest.approx(float(loss), rel=1e-6)
    state = rig.state()
    assert len(b.stored) == len(CASE.model.adapter_shapes("block_01")) + 2
    for name, tensor in b.stored.items():
        assert tensor.dtype == dtype
        np.testing.assert_allclose(tensor.float().numpy(), state[name], rtol=1e-6)


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("kind", [PlanBuilder, DirectBuilder])
def test_a_builder_takes_what_the_protocol_says(kind: type[Any], name: str) -> None:
    declared = vars(StepBuilder)[name]
    if isinstance(declared, property):
        b = direct(Rig(CASE, planned(Weighing(), Settings(), CASE), Weighing(), Settings()).batch(), torch.float32, {})
        assert hasattr(b, name)
        return
    assert (
        str(inspect.signature(getattr(kind, name))).split(" -> ")[0]
        == str(inspect.signature(declared)).split(" -> ")[0]
    )


def test_a_value_has_the_dtype_of_the_plan_in_any_precision() -> None:
    batch = Rig(CASE, planned(Weighing(), Settings(), CASE), Weighing(), Settings()).batch()
    b = direct(batch, torch.float64, {})
    assert [b.zeros((2,), dtype).dtype for dtype in ("float32", "float16", "uint8", "int64")] == [
        "float32",
        "float16",
        "uint8",
        "int64",
    ]
    assert b.zeros((2,)).tensor.dtype == torch.float64
    assert (b.batch().tokens.dtype, b.batch().mask.dtype) == ("int64", "float32")


def test_an_array_that_the_batch_lacks_is_refused() -> None:
    b = direct(Rig(CASE, planned(Weighing(), Settings(), CASE), Weighing(), Settings()).batch(), torch.float32, {})
    with pytest.raises(PlanError, match="a batch without it"):
        b.array("labels", "int64")
    with pytest.raises(PlanError, match="a name that Python takes"):
        b.array("mask", "float32")
    with pytest.raises(PlanError, match="a place for a result 'half'"):
        b.call(torch.clone, b.zeros((2,)), into={"half": b.zeros((2,))})
