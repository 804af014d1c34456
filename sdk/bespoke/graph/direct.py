# SPDX-License-Identifier: Apache-2.0
"""A builder that computes at once: the step that a method writes, as one function of tensors.

What a plan does with values, this does with tensors. No planning and no interpreter takes part. So a step can be exported as
one program, and the formulas of a method can be checked in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from bespoke.config import Training
from bespoke.errors import PlanError
from bespoke.graph.misuse import check_array, check_places
from bespoke.graph.step_builder import Choice
from bespoke.graph.trace import DTYPE_NAMES
from bespoke.graph.tree import flatten, leaves_of, map_leaves, paths, unflatten
from bespoke.graph.value import Batch, Value
from bespoke.ops.dtypes import TORCH_DTYPES, Tensors
from bespoke.plan.instructions import DType, SectionName
from bespoke.plan.kinds import option_scalar

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

__all__ = ["Cell", "DirectBuilder"]


@dataclass(eq=False)
class Cell:
    """A value that holds its tensor."""

    tensor: torch.Tensor
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> DType:
        """The dtype that a plan gives the value. A step that computes in another precision does so in the place of float32."""
        return DTYPE_NAMES.get(self.tensor.dtype, "float32")

    @property
    def out(self) -> int:
        """Rows of a table, as `QuantizedWeight.out`."""
        return self.shape[0]

    def rows(self, start: int, stop: int) -> Cell:
        return Cell(self.tensor[start:stop], self.name)


@dataclass(eq=False)
class DirectBuilder:
    """A `StepBuilder` over tensors. What the step stores, records, emits and sums up is read from it afterwards.

    tokens, targets: int64 (B, T)
    mask:            (B, T); its dtype is the one that the step computes in
    group:           trees of frozen weights by name of the group: Cells, or QuantizedWeights of Cells
    adapter_tensors: trained pieces by full name
    states:          optimizer state by full name; zero where there is none
    numbers:         scalars by name, options as `option_scalar` names them
    draw:            the noise of a piece or state of this name and shape, for a query of a distribution
    arrays:          batch arrays of the method by name, (B, T)
    received:        what a round of federated learning brought, by name
    tiles:           choices by name; a choice that is not there is the last candidate if `widest`, else the first
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
    arrays: Mapping[str, torch.Tensor] = field(default_factory=dict)
    received: Mapping[str, torch.Tensor] = field(default_factory=dict)
    tiles: Mapping[str, Any] = field(default_factory=dict)
    widest: bool = False
    sums: dict[str, Cell] = field(default_factory=dict)
    stored: Tensors = field(default_factory=dict)  # by name
    finished: Tensors = field(default_factory=dict)  # what section `finish` stores
    recorded: list[torch.Tensor] = field(default_factory=list)
    sent: torch.Tensor | None = None
    metrics: Tensors = field(default_factory=dict)
    state_names: list[str] = field(default_factory=list)  # in the order of their first use
    section: SectionName = "train_step"

    @property
    def sequence_length(self) -> int:
        return self.tokens.shape[1]

    @property
    def batch_size(self) -> int:
        return self.tokens.shape[0]

    def weights(self, group: str) -> dict[str, Any]:
        return self.group(group)

    def adapter(self, group: str) -> dict[str, Value]:
        names = [f"{group}.{piece}" for piece in self.model.adapter_shapes(group) if self.model.lora.trains(piece)]
        return {name.split(".", 1)[1]: Cell(self.adapter_tensors[name], name) for name in names}

    def batch(self, copies: int = 1) -> Batch:
        return Batch(*(Cell(tensor.repeat(copies, 1)) for tensor in (self.tokens, self.targets, self.mask)))

    def array(self, name: str, dtype: Literal["int64", "float32"]) -> Cell:
        check_array(name, dtype)
        if name not in self.arrays:
            raise PlanError(
                f"Array '{name}'",
                got="a batch without it",
                expected=f"one of {', '.join(sorted(self.arrays)) or 'none'}",
                next_step=f"Give '{name}' among the arrays, or make a step that does without",
            )
        return Cell(self.arrays[name].to(self._torch_dtype(dtype)))

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

    def zeros(self, shape: Sequence[int], dtype: DType = "float32") -> Cell:
        return Cell(torch.zeros(tuple(shape), dtype=self._torch_dtype(dtype)))

    def accumulator(self, like: Value) -> Cell:
        return self.sums.setdefault(like.name, self.zeros(like.shape))

    def choose(self, name: str, candidates: Sequence[Choice]) -> Choice:
        choice: Choice = self.tiles.get(name, candidates[-1 if self.widest else 0])
        return choice

    def call(
        self, function: Callable[..., Any], *trees: Any, into: Any = None, add_to: Any = None, **static: Hashable
    ) -> Any:
        with torch.no_grad():
            results = function(*map_leaves(lambda cell: cell.tensor, trees), **static)
        fill, add = _by_path(into), _by_path(add_to)
        leaves, form = flatten(results)
        names = paths(form)
        check_places(getattr(function, "__name__", str(function)), names, fill, add)
        cells = []
        for path, tensor in zip(names, leaves, strict=True):
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
        """Does nothing: every value is kept."""

    def noise(self, tree: Any, query: int | Value = 0, distribution: Literal["normal", "rademacher"] = "normal") -> Any:
        number = query if isinstance(query, int) else int(tensor_of(query))
        return map_leaves(lambda like: Cell(self.draw(like.name, like.shape, number, distribution)), tree)

    def state(self, like: Value, name: str, shape: Sequence[int] | None = None) -> Cell:
        full = f"{like.name}.{name}"
        if full not in self.state_names:
            self.state_names.append(full)
        tensor = self.states.get(full)
        return Cell(self.zeros(like.shape if shape is None else shape).tensor if tensor is None else tensor, full)

    def store(self, states: Any, values: Any) -> None:
        into = self.finished if self.section == "finish" else self.stored
        for old, new in zip(leaves_of(states), leaves_of(values), strict=True):
            into[old.name] = new.tensor

    def record(self, value: Value) -> Value:
        self.recorded.append(tensor_of(value))
        return value

    def signs(self, count: int, query: Value) -> Cell:
        return Cell(self.draw("", (count,), int(tensor_of(query)), "rademacher"))

    def receive(self, name: str, shape: Sequence[int], dtype: Literal["uint8", "float32"]) -> Cell:
        brought = self.received.get(name)
        return self.zeros(shape, dtype) if brought is None else Cell(brought)

    def send(self, value: Value) -> None:
        self.sent = tensor_of(value)

    def emit(self, **metrics: Value) -> None:
        self.metrics |= {name: tensor_of(value) for name, value in metrics.items()}

    def begin_section(self, name: SectionName) -> None:
        """Sections follow one another. Each reads the state from before the step."""
        self.section = name

    def _torch_dtype(self, dtype: DType) -> torch.dtype:
        return self.mask.dtype if dtype == "float32" else TORCH_DTYPES[dtype]


def tensor_of(value: Value) -> torch.Tensor:
    """The tensor of a value that a DirectBuilder gave."""
    assert isinstance(value, Cell)
    return value.tensor


def _by_path(tree: Any) -> dict[str, Cell]:
    leaves, form = flatten(tree)
    return dict(zip(paths(form), leaves, strict=True))
