# SPDX-License-Identifier: Apache-2.0
"""What a plugin is: an optimizer writes a training step with the builder, a target compiles graphs. One or two methods each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bespoke.config import Settings
from bespoke.errors import Unsupported
from bespoke.graph import Batch, Graph, PlanBuilder, TensorSpec, Value
from bespoke.hookspecs import hookimpl
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import TORCH_COSTS, Costs, Speed
from bespoke.system.quiet_imports import quiet_imports

__all__ = [
    "TORCH_COSTS",
    "Artifact",
    "Batch",
    "CompilingTarget",
    "Costs",
    "Graph",
    "ModelSpec",
    "Optimizer",
    "PlanBuilder",
    "Settings",
    "Speed",
    "Target",
    "TensorSpec",
    "Unsupported",
    "Value",
    "hookimpl",
    "quiet_imports",
]


@dataclass(frozen=True)
class Artifact:
    """A compiled graph on disk, and what one call of it takes beside its operands, in bytes.

    `workspace_bytes` is free again after the call, in one region for all graphs. `engine_bytes` is what the engine allocates itself
    and keeps: it too holds only the most that a graph has needed, so the two largest add up, and they may be of different graphs.
    """

    path: Path
    workspace_bytes: int
    engine_bytes: int = 0


@runtime_checkable
class Optimizer(Protocol):
    """How gradients (or what stands for them) come about."""

    name: str

    @property
    def Options(self) -> type[Settings]:
        """Pydantic model of the options; a class attribute does."""

    def train_step(self, b: PlanBuilder, model: ModelSpec, options: Any) -> None:
        """Writes one training step: reads `b.batch()`, stores new adapters, emits `loss`.

        Every field of `Options` that has the name of a scalar (`epsilon`) is bound to it when the plan runs.
        """


@runtime_checkable
class Target(Protocol):
    """What bundles are built for. `costs`: memory and speed of its runtime apart from the graphs, measured; estimates and the
    choice of plans rest on them.

    A target with nothing but these has no artifacts: its runtime runs the graphs that every bundle carries, as torch does
    (TORCH_COSTS are its costs). One that compiles graphs is a `CompilingTarget`.
    """

    name: str
    costs: Costs

    @property
    def Options(self) -> type[Settings]:
        """Pydantic model of the options; a class attribute does."""


@runtime_checkable
class CompilingTarget(Target, Protocol):
    """A target whose runtime needs graphs in a form of its own: one artifact for each graph."""

    def lower(self, graph: Graph, folder: Path, options: Any) -> Artifact:
        """Compiles one graph into one file in `folder`, the same bytes every time.

        Raises Unsupported naming graph, operator and reason: this is the only statement of what a target can do.
        """

    def open(self, path: Path, options: Any) -> Callable[..., tuple[Any, ...]] | None:
        """The artifact as a function of the graph's operands (torch tensors), or None where it cannot run here."""
