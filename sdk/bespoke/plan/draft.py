# SPDX-License-Identifier: Apache-2.0
"""A plan before the passes: values without places, graphs, and recorded sections."""

from __future__ import annotations

from dataclasses import dataclass, field

from bespoke.plan.instructions import DType, Instruction, Lifetime, Role, SectionName, tensor_bytes


@dataclass
class DraftValue:
    """A value without a place.

    name: by which the runtime binds it; the name of a temporary is for error messages
    kept: waits in memory, never in the scratch file
    """

    shape: tuple[int, ...]
    dtype: DType
    role: Role
    lifetime: Lifetime
    name: str
    number: int | None = None
    kept: bool = False

    @property
    def nbytes(self) -> int:
        return tensor_bytes(self.shape, self.dtype)

    @property
    def group(self) -> str | None:
        """The group of a weight: its name up to the first dot."""
        return self.name.split(".", 1)[0] if self.role == "weight" else None


@dataclass
class DraftGraph:
    """A graph as a plan knows it: key, signature and cost of a call."""

    key: str
    name: str
    inputs: list[tuple[tuple[int, ...], DType]]
    outputs: list[tuple[tuple[int, ...], DType]]
    workspace_bytes: int
    flops: int
    in_place_bytes: int = 0
    traffic_bytes: int = 0


@dataclass
class DraftPlan:
    """Recorded data flow, section by section, before any pass."""

    values: list[DraftValue] = field(default_factory=list)
    graphs: list[DraftGraph] = field(default_factory=list)
    sections: dict[SectionName, list[Instruction]] = field(default_factory=dict)
