# SPDX-License-Identifier: Apache-2.0
"""A builder that computes at once: the step that a method writes, as one function of tensors.

What a plan would do with values, this does with tensors; no planning and no interpreter takes part. So a step can be exported as
one program, and a method's formulas be held in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from bespoke.config import Training
from bespoke.errors import PlanError
from bespoke.graph.tree import flatten, leaves_of, map_leaves, paths, unflatten
from bespoke.graph.value import Batch
from bespoke.plan.kinds import option_scalar

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

__all__ = ["Cell", "DirectBuilder"]

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
class DirectBuilder:
    """As much of PlanBuilder as training steps use. Results of `store`, `record`, `emit` and sums are read from it afterwards.

    tokens, targets: int64 (B, T); mask: (B, T) of `dtype`, as everything that is computed
    group:       trees of frozen weights by name of the group: Cells, or QuantizedWeights of Cells
    adapter_tensors: trained pieces by full name; `states`: optimizer state by full name, zero where there is none
    numbers:     scalars by name, of options as `option_scalar` names them
    draw:        the noise of a piece of this name and shape, for a query of a distribution
    tiles:       choices by name; otherwise `widest` takes the last candidate, or the first
    """

    model: ModelSpec
    training: Training
    tokens: torch.Tensor
    targets: torch.Tensor
    mask: torch.Tensor
    group: Callable[[str], dict[str, Any]]
    adapter_tensors: Mapping[str, torch.Tensor]
    states: Mapping[str, torch.Tensor]
    numbers: Mapping[str, torch.Tensor]
    draw: Callable[[str, tuple[int, ...], int, Any], torch.Tensor]
    tiles: Mapping[str, Any] = field(default_factory=dict)
    widest: bool = False
    sums: dict[str, Cell] = field(default_factory=dict)
    stored: Tensors = field(default_factory=dict)  # by name
    finished: Tensors = field(default_factory=dict)  # what section `finish` stores
    recorded: list[torch.Tensor] = field(default_factory=list)
    metrics: Tensors = field(default_factory=dict)
    section: str = "train_step"

    @property
    def sequence_length(self) -> int:
        return self.tokens.shape[1]

    @property
    def batch_size(self) -> int:
        return self.tokens.shape[0]

    def weights(self, group: str) -> dict[str, Any]:
        return self.group(group)

    def adapter(self, group: str) -> dict[str, Cell]:
        names = [f"{group}.{piece}" for piece in self.model.adapter_shapes(group) if self.model.lora.trains(piece)]
        return {name.split(".", 1)[1]: Cell(self.adapter_tensors[name], name) for name in names}

    def batch(self, copies: int = 1) -> Batch:
        return Batch(*(Cell(tensor.repeat(copies, 1)) for tensor in (self.tokens, self.targets, self.mask)))  # type: ignore[arg-type]

    def scalar(self, name: str) -> Cell:
        bound = option_scalar(name)
        if bound not in self.numbers:
            raise PlanError(
                f"Scalar '{name}'",
                got="a number that is not given",
                expected=f"one of {', '.join(sorted(self.numbers))}",
                next_step=f"Give '{bound}' among the numbers, or make a step that does without",
            )
        return Cell(self.numbers[bound])

    def constant(self, number: int) -> Cell:
        return Cell(torch.tensor(number))

    def zeros(self, shape: Sequence[int]) -> Cell:
        return Cell(torch.zeros(tuple(shape), dtype=self.mask.dtype))

    def accumulator(self, like: Cell) -> Cell:
        return self.sums.setdefault(like.name, self.zeros(like.shape))

    def choose(self, name: str, candidates: Sequence[Any]) -> Any:
        return self.tiles.get(name, candidates[-1 if self.widest else 0])

    def call(
        self, function: Callable[..., Any], *trees: Any, into: Any = None, add_to: Any = None, **static: Any
    ) -> Any:
        with torch.no_grad():
            results = function(*map_leaves(lambda cell: cell.tensor, trees), **static)
        fill, add = _by_path(into), _by_path(add_to)
        leaves, form = flatten(results)
        cells = []
        for path, tensor in zip(paths(form), leaves, strict=True):
            target = fill.get(path) or add.get(path)
            if target is None:
                target = Cell(tensor)
            elif path in fill:
                target.tensor.copy_(tensor)
            else:
                target.tensor.add_(tensor)
            cells.append(target)
        return unflatten(form, iter(cells))

    def keep(self, *trees: Any) -> None:
        """Everything is kept here."""

    def noise(self, like: Cell, query: int = 0, distribution: Any = "normal") -> Cell:
        return Cell(self.draw(like.name, like.shape, query, distribution))

    def state(self, like: Cell, name: str, shape: Sequence[int] | None = None) -> Cell:
        full = f"{like.name}.{name}"
        found = self.states.get(full)
        return Cell(self.zeros(like.shape if shape is None else shape).tensor if found is None else found, full)

    def store(self, states: Any, values: Any) -> None:
        into = self.finished if self.section == "finish" else self.stored
        for old, new in zip(leaves_of(states), leaves_of(values), strict=True):
            into[old.name] = new.tensor

    def record(self, value: Cell) -> Cell:
        self.recorded.append(value.tensor)
        return value

    def emit(self, **metrics: Cell) -> None:
        self.metrics |= {name: cell.tensor for name, cell in metrics.items()}

    def begin_section(self, name: str) -> None:
        """Sections follow one another here, and each reads the state from before the step."""
        self.section = name


def _by_path(tree: Any) -> dict[str, Cell]:
    leaves, form = flatten(tree)
    return dict(zip(paths(form), leaves, strict=True))
