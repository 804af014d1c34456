# SPDX-License-Identifier: Apache-2.0
"""What the builder knows of a value before the passes give it a place."""

from __future__ import annotations

from dataclasses import dataclass, field

from bespoke.plan.instructions import DTYPE_BYTES, DType, Instruction, Lifetime, Role, SectionName


@dataclass
class DraftValue:
    """A value without a place. `name` is what the runtime finds it by; a temporary's is only for error messages."""

    shape: tuple[int, ...]
    dtype: DType
    role: Role
    lifetime: Lifetime
    name: str
    number: int | None = None

    @property
    def nbytes(self) -> int:
        size = DTYPE_BYTES[self.dtype]
        for extent in self.shape:
            size *= extent
        return size

    @property
    def group(self) -> str | None:
        """The weight group of a weight: what stands before the first dot of its name."""
        return self.name.split(".", 1)[0] if self.role == "weight" else None


@dataclass
class DraftGraph:
    """What a plan must know of a graph: its key, its signature and what a call takes beside its operands."""

    key: str
    name: str
    inputs: list[tuple[tuple[int, ...], DType]]
    outputs: list[tuple[tuple[int, ...], DType]]
    workspace_bytes: int
    flops: int


@dataclass
class DraftPlan:
    """Recorded data flow, section by section, before any pass."""

    values: list[DraftValue] = field(default_factory=list)
    graphs: list[DraftGraph] = field(default_factory=list)
    sections: dict[SectionName, list[Instruction]] = field(default_factory=dict)
