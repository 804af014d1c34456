# SPDX-License-Identifier: Apache-2.0
"""Values: what a method handles in the place of tensors, and what a plan knows of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from bespoke.errors import PlanError
from bespoke.plan.instructions import DType, Operand, Role


class Value(Protocol):
    """A tensor of a step, as a method handles it. `name` is what messages call it."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> DType: ...

    def rows(self, start: int, stop: int) -> Value:
        """Rows `[start, stop)` of the value, without a copy."""


@dataclass(frozen=True)
class PlanValue:
    """A value of a plan, or a row range of one. Nothing is computed here."""

    id: int
    shape: tuple[int, ...]
    dtype: DType
    role: Role
    name: str
    start: int | None = None  # first row of a range; None for the whole value
    scalar: int | None = None  # id of an integer scalar that is added to `start` at run time

    def rows(self, start: int, stop: int) -> PlanValue:
        if not self.shape or not 0 <= start < stop <= self.shape[0]:
            raise PlanError(
                f"Value '{self.name}'",
                got=f"rows({start}, {stop})",
                expected=f"a non-empty range within {self.shape[0] if self.shape else 'a value that has rows'}",
                next_step="Cut the last tile at the end of the value",
            )
        return replace(self, start=(self.start or 0) + start, shape=(stop - start, *self.shape[1:]))

    def rows_at(self, scalar: PlanValue, count: int) -> PlanValue:
        """`count` rows that begin where an integer scalar says when the plan runs. The runtime checks the bounds."""
        if self.start is not None or scalar.dtype != "int64" or scalar.shape != () or not 0 < count <= self.shape[0]:
            raise PlanError(
                f"Value '{self.name}'",
                got=f"rows_at({scalar.name}, {count})",
                expected="a whole value, an integer scalar and a count within the value",
                next_step="Place ranges by b.scalar('position')",
            )
        return replace(self, start=0, scalar=scalar.id, shape=(count, *self.shape[1:]))

    @property
    def operand(self) -> Operand:
        """The form it has in the plan."""
        if self.start is None:
            return [self.id]
        if self.scalar is None:
            return [self.id, self.start, self.shape[0]]
        return [self.id, self.start, self.shape[0], self.scalar]


@dataclass(frozen=True)
class Batch:
    """Rows of tokens: `tokens` and `targets` int64 [B, T], `mask` fp32 [B, T], 1 where a target is trained on."""

    tokens: Value
    targets: Value
    mask: Value
