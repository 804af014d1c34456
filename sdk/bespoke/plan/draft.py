# SPDX-License-Identifier: Apache-2.0
"""What the builder knows of a value before the passes give it a place."""

from __future__ import annotations

from dataclasses import dataclass, field

from bespoke.plan.instructions import DType, Instruction, Lifetime, Role, SectionName, tensor_bytes


@dataclass
class DraftValue:
    """A value without a place. `name` is what the runtime finds it by; a temporary's is only for error messages. What is `kept`
    waits in memory, never in the scratch file."""

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
        """The weight group of a weight: what stands before the first dot of its name."""
        return self.name.split(".", 1)[0] if self.role == "weight" else None


@dataclass
class DraftGraph:
    """What a plan must know of a graph: its key, its signature and what a call takes."""

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
