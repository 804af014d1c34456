# SPDX-License-Identifier: Apache-2.0
"""Training steps computed at once in float64: the same plugin code, so that its formulas can be held to 1e-10.

Tables are dense in float64; linears stay int4, whose operators compute in the dtype of their operand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bespoke.config import Training
from bespoke.graph.direct import Cell, DirectBuilder, tensor_of
from bespoke.graph.states import noise_counter
from bespoke.graph.value import Value
from bespoke.model.quantize import dequantize
from bespoke.model.spec import ModelSpec
from bespoke.ops.dtypes import Tensors
from bespoke.ops.weight import QuantizedWeight
from bespoke.plan.kinds import NO_BLOCK
from bespoke.rules.noise import noise
from bespoke.testing.tiny import TokenBatch
from tests.gradients.harness import Base


class EagerBuilder(DirectBuilder):
    """Runs one step of a tiny model at once; recorded and emitted numbers are floats."""

    def __init__(
        self,
        base: Base,
        model: ModelSpec,
        training: Training,
        batch: TokenBatch,
        state: Tensors,
        scalars: Mapping[str, float],
        tiles: Mapping[str, int] | None = None,
        seed: int = 0,
        step: int = 1,
        states: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        numbers = {"batch_tokens": batch.trained, "step": float(step), **scalars}

        def drawn(name: str, shape: tuple[int, ...], query: int, distribution: Any) -> torch.Tensor:
            block, tensor = noise_counter(model, name, self.state_names) if name else (NO_BLOCK, 0)
            z = noise(shape, seed=seed, step=step, query=query, block=block, tensor=tensor, distribution=distribution)
            return torch.from_numpy(z).double()

        super().__init__(
            model,
            training,
            batch.tokens,
            batch.targets,
            batch.mask.double(),
            group=lambda group: weights(base, model, state, group),
            adapter_tensors=state,
            states=states or {},
            numbers={name: torch.tensor(number, dtype=torch.float64) for name, number in numbers.items()},
            draw=drawn,
            arrays=batch.arrays,
            tiles=tiles or {},
        )

    def record(self, value: Value) -> Value:
        self.recorded.append(float(tensor_of(value)))  # type: ignore[arg-type]
        return value

    def emit(self, **metrics: Value) -> None:
        self.metrics |= {name: float(tensor_of(value)) for name, value in metrics.items()}  # type: ignore[misc]


def weights(base: Base, model: ModelSpec, state: Tensors, group: str) -> dict[str, Any]:
    arrays = {name: torch.from_numpy(array.copy()) for name, array in base.groups[group].items()}
    tree: dict[str, Any] = {}
    if group == "rope":
        return {name: Cell(table.double()) for name, table in arrays.items()}
    for name, shape in model.weight_shapes(group).items():
        if name == "table":
            table = dequantize(arrays["table.codes"].numpy(), arrays["table.scales"].numpy(), shape[1])
            tree[name] = Cell(torch.from_numpy(table).double())
        elif model.is_quantized(name):
            tree[name] = QuantizedWeight(Cell(arrays[f"{name}.codes"]), Cell(arrays[f"{name}.scales"]), shape[1])
        else:
            tree[name] = Cell(arrays[name].double())
    if group in model.blocks:
        tree |= {name: Cell(state[f"{group}.{name}"]) for name in model.frozen_pieces(group)}
    return tree


def doubles(arrays: Mapping[str, Any]) -> Tensors:
    return {name: torch.from_numpy(array).double() for name, array in arrays.items()}
