# SPDX-License-Identifier: Apache-2.0
"""A builder that computes at once, in float64: the same plugin code, so that its formulas can be held to 1e-10.

What a plan would do with values, this does with tensors. Tables are dense in float64; linears stay int4, whose operators compute in
the dtype of their operand. Nothing of tracing, planning or the interpreter takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bespoke.config import Training
from bespoke.graph.tree import flatten, leaves_of, map_leaves, paths, unflatten
from bespoke.graph.value import Batch
from bespoke.model.quantize import dequantize
from bespoke.model.spec import ModelSpec
from bespoke.ops.weight import QuantizedWeight
from bespoke.rules.noise import noise
from bespoke.testing.tiny import TokenBatch
from tests.gradients.harness import Base

Tensors = dict[str, torch.Tensor]


@dataclass(eq=False)
class Cell:
    """A tensor with the face of a plan's value."""

    tensor: torch.Tensor
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def out(self) -> int:
        return self.shape[0]

    def rows(self, start: int, stop: int) -> Cell:
        return Cell(self.tensor[start:stop], self.name)


@dataclass(eq=False)
class EagerBuilder:
    """As much of PlanBuilder as training steps use. Results of `store`, `record`, `emit` and sums are read from it afterwards."""

    base: Base
    model: ModelSpec
    training: Training
    tokens: TokenBatch
    state_tensors: Tensors
    scalars: Mapping[str, float]
    tiles: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    step: int = 1
    sums: dict[str, Cell] = field(default_factory=dict)
    stored: Tensors = field(default_factory=dict)
    recorded: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    optimizer: dict[str, Cell] = field(default_factory=dict)

    @property
    def sequence_length(self) -> int:
        return self.tokens.tokens.shape[1]

    @property
    def batch_size(self) -> int:
        return self.tokens.tokens.shape[0]

    def weights(self, group: str) -> dict[str, Any]:
        arrays = {name: torch.from_numpy(array.copy()) for name, array in self.base.groups[group].items()}
        tree: dict[str, Any] = {}
        if group == "rope":
            return {name: Cell(table.double()) for name, table in arrays.items()}
        for name, shape in self.model.weight_shapes(group).items():
            if name == "table":
                table = dequantize(arrays["table.codes"].numpy(), arrays["table.scales"].numpy(), shape[1])
                tree[name] = Cell(torch.from_numpy(table).double())
            elif self.model.is_quantized(name):
                tree[name] = QuantizedWeight(Cell(arrays[f"{name}.codes"]), Cell(arrays[f"{name}.scales"]), shape[1])
            else:
                tree[name] = Cell(arrays[name].double())
        if group in self.model.blocks:
            tree |= {name: Cell(self.state_tensors[f"{group}.{name}"]) for name in self.model.frozen_pieces(group)}
        return tree

    def adapter(self, group: str) -> dict[str, Cell]:
        names = [f"{group}.{piece}" for piece in self.model.adapter_shapes(group) if self.model.lora.trains(piece)]
        return {name.split(".", 1)[1]: Cell(self.state_tensors[name], name) for name in names}

    def batch(self, copies: int = 1) -> Batch:
        cells = (self.tokens.tokens, self.tokens.targets, self.tokens.mask.double())
        return Batch(*(Cell(tensor.repeat(copies, 1)) for tensor in cells))  # type: ignore[arg-type]

    def scalar(self, name: str) -> Cell:
        number = {"batch_tokens": self.tokens.trained, "step": float(self.step), **self.scalars}[name]
        return Cell(torch.tensor(number, dtype=torch.float64))

    def constant(self, number: int) -> Cell:
        return Cell(torch.tensor(number))

    def zeros(self, shape: Sequence[int]) -> Cell:
        return Cell(torch.zeros(tuple(shape), dtype=torch.float64))

    def accumulator(self, like: Cell) -> Cell:
        return self.sums.setdefault(like.name, self.zeros(like.shape))

    def choose(self, name: str, candidates: Sequence[int]) -> int:
        return self.tiles.get(name, candidates[0])

    def call(self, function: Callable[..., Any], *trees: Any, into: Any = None, add_to: Any = None, **static: Any) -> Any:
        with torch.no_grad():
            results = function(*map_leaves(lambda cell: cell.tensor, trees), **static)
        fill, add = _by_path(into), _by_path(add_to)
        leaves, form = flatten(results)
        cells = []
        for path, tensor in zip(paths(form), leaves, strict=True):
            target = fill.get(path) or add.get(path)
            if target is None:
                target = Cell(tensor.clone())
            elif path in fill:
                target.tensor.copy_(tensor)
            else:
                target.tensor.add_(tensor)
            cells.append(target)
        return unflatten(form, iter(cells))

    def keep(self, *trees: Any) -> None:
        """Everything is kept here."""

    def noise(self, like: Cell, query: int = 0, distribution: Any = "normal") -> Cell:
        group, piece = like.name.split(".", 1)
        drawn = noise(
            like.shape, seed=self.seed, step=self.step, query=query, block=self.model.blocks.index(group),
            tensor=list(self.model.adapter_shapes(group)).index(piece), distribution=distribution,
        )  # fmt: skip
        return Cell(torch.from_numpy(drawn).double())

    def state(self, like: Cell, name: str, shape: Sequence[int] | None = None) -> Cell:
        full, extents = f"{like.name}.{name}", like.shape if shape is None else tuple(shape)
        return self.optimizer.setdefault(full, Cell(torch.zeros(extents, dtype=torch.float64), full))

    def store(self, states: Any, values: Any) -> None:
        for old, new in zip(leaves_of(states), leaves_of(values), strict=True):
            self.stored[old.name] = new.tensor.clone()

    def record(self, value: Cell) -> Cell:
        self.recorded.append(float(value.tensor))
        return value

    def emit(self, **metrics: Cell) -> None:
        self.metrics |= {name: float(cell.tensor) for name, cell in metrics.items()}

    def begin_section(self, name: str) -> None:
        """Sections follow one another here, and each reads the state from before the step."""


def _by_path(tree: Any) -> dict[str, Cell]:
    leaves, form = flatten(tree)
    return dict(zip(paths(form), leaves, strict=True))


def doubles(arrays: Mapping[str, Any]) -> Tensors:
    return {name: torch.from_numpy(array).double() for name, array in arrays.items()}
