# SPDX-License-Identifier: Apache-2.0
"""The contracts of plugins. An optimizer writes a training step with the builder; a target compiles graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, final, runtime_checkable

import numpy as np

from bespoke.config import Scalar, Settings
from bespoke.errors import Unsupported
from bespoke.graph import Batch, Graph, StepBuilder, TensorSpec, Value
from bespoke.hookspecs import hookimpl
from bespoke.methods.federated import Guidance
from bespoke.methods.zeroth_order import CurvatureOptions, NormalizedOptions, ZerothOrderOptions
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import TORCH_COSTS, Costs, Speed
from bespoke.system.quiet_imports import quiet_imports

__all__ = [
    "PROMISED_OPTIONS",
    "TORCH_COSTS",
    "Artifact",
    "Baked",
    "Batch",
    "Costs",
    "Feature",
    "FederatedOptimizer",
    "Graph",
    "ModelSpec",
    "Optimizer",
    "Problem",
    "Promise",
    "Scalar",
    "Settings",
    "Speed",
    "StepBuilder",
    "Target",
    "TensorSpec",
    "Unsupported",
    "Value",
    "hookimpl",
    "quiet_imports",
]


@dataclass(frozen=True)
class Artifact:
    """A compiled graph on disk, and the memory of one call of it without its operands, in bytes.

    Args:
        path: the file that `lower` wrote.
        workspace_bytes: memory that is free again after the call, in one region for all graphs.
        engine_bytes: memory that the engine allocates and keeps. It holds only the most that a graph has needed. So the largest
            `workspace_bytes` and the largest `engine_bytes` add up, and they may be of different graphs.
        kept_bytes: anonymous memory of a baked artifact while it is open. All artifacts of a plan are open at once.
        cache_bytes: what the engine writes into its cache folder on the device, once for all artifacts with the same weights.
        delegates: what computes parts of the artifact for the engine, by the engine's names. The manifest lists them, so that a
            device knows what it needs.
    """

    path: Path
    workspace_bytes: int
    engine_bytes: int = 0
    kept_bytes: int = 0
    cache_bytes: int = 0
    delegates: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Baked:
    """Weights that become part of an artifact instead of operands of its graph.

    Args:
        key: 64 hexadecimal digits for graph, weights, rows and columns. The artifact's file is named after it.
        operands: by the graph's names, codes (uint8) and scales (fp16) of the rows that the call uses, with all columns, and
            column_start (int64, a scalar) where the graph cuts columns. The artifact takes all other operands in order.
    """

    key: str
    operands: Mapping[str, np.ndarray]


class Feature(NamedTuple):
    """A tensor as an artifact takes or gives it, where it differs from the graph's tensor.

    Args:
        dtype: the element type, as numpy names it.
        shape: the shape.
        view: how one becomes the other; `bespoke.bundle.target_records.FeatureRecord` says what each value means.
    """

    dtype: Literal["float32", "float16", "uint8", "int32", "int64", "int8"]
    shape: tuple[int, ...]
    view: Literal["same", "bytes", "value"]


class Problem(NamedTuple):
    """An error's got, expected and next step, without its subject."""

    got: str
    expected: str
    next_step: str


Promise = Literal[
    "exact_gradients", "two_sided_loss_difference", "normalized_loss_difference", "curvature_scaled_difference"
]
"""A property of a method that golden vectors check on every device.

exact_gradients: the method gives the gradients of the batch's mean loss to `bespoke.methods.update`, or sums them in
`b.accumulator`, for every piece of the adapter that it stores. Where it reads arrays of its own, it does so while all of them are
0, which is how golden vectors run it. Options derived from `bespoke.methods.FirstOrderOptions` state its
update rule. Other options leave the rule open.
The others: the method's options derive from a class of PROMISED_OPTIONS. It records the numbers and takes the step that this class
describes.
"""
PROMISED_OPTIONS: Mapping[str, type[Settings]] = {
    "two_sided_loss_difference": ZerothOrderOptions,
    "normalized_loss_difference": NormalizedOptions,
    "curvature_scaled_difference": CurvatureOptions,
}


@runtime_checkable
class Optimizer(Protocol):
    """A method. It writes the training step, which computes gradients or estimates them."""

    name: str

    @property
    def promises(self) -> Promise | None:
        """The property that golden vectors check. None: they check only the model's loss and answers. May be a class attribute."""

    @property
    def Options(self) -> type[Settings]:
        """Pydantic model of the options. May be a class attribute."""

    def train_step(self, b: StepBuilder, model: ModelSpec, options: Any) -> None:
        """Writes one training step: reads `b.batch()`, stores new adapters, emits `loss`.

        Every field of `Options` that has the name of a scalar (`epsilon`) is bound to it when the plan runs.
        """


@runtime_checkable
class FederatedOptimizer(Optimizer, Protocol):
    """A method of which many devices take steps together, each from what it measures (`bespoke.methods.federated`).

    Methods that promise `exact_gradients` need not be one: what they send are projections of their gradients.
    """

    def federated_measure(self, b: StepBuilder, model: ModelSpec, options: Any) -> Guidance:
        """Writes section `federated_measure`: reads `b.batch()` and `b.scalar("direction")`, stores nothing, sends one number.

        Returns the guidance that its directions have. The step along a direction is then the SDK's `federated_apply`.
        """


class Target:
    """What bundles are built for. Derive from it and override the hooks that your target needs.

    `name` and `costs` are required. A target whose runtime needs graphs in a form of its own overrides `lower` and `open`. A target
    that overrides neither has no artifacts: its runtime runs the graphs that every bundle carries. In each hook `options` is an
    instance of `Options`.
    """

    name: str
    """The name that `targets=` and the manifest use: letters, digits and `_.@+=-`.

    Default: none, required.
    """

    costs: Costs
    """Memory and speed of the runtime apart from the graphs, measured. Estimates and the choice of plans rest on it.

    Default: none, required. `TORCH_COSTS` are the costs of the engine `torch`.
    """

    Options: type[Settings] = Settings
    """The options that a developer may set, a pydantic model in which every field has a default.

    Default: no options.
    """

    @final
    @property
    def compiles(self) -> bool:
        """Whether bundles carry artifacts of this target: whether it overrides `lower`."""
        return type(self).lower is not Target.lower

    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Artifact:
        """Compiles one graph into one file in `folder`, with the same bytes every time, or raises Unsupported.

        Called once for each graph when a bundle is built. For a graph that the target bakes, called once for each set of weights,
        which is then `baked`. Unsupported names graph, operator and reason: there is no other statement of what a target can do.

        Default: no artifacts.
        """
        raise NotImplementedError(f"target '{self.name}' has no artifacts")

    def open(self, path: Path, options: Any) -> Callable[..., tuple[Any, ...]] | None:
        """Returns the artifact as a function of its operands (torch tensors), or None where it cannot run on this machine.

        Called by the contract suite and by `bespoke.testing.TargetEngine`, for each artifact.

        Default: no artifacts. A target that overrides `lower` overrides `open` too.
        """
        raise NotImplementedError(f"target '{self.name}' has no artifacts")

    def bakes(self, options: Any, graph: Graph | None = None) -> bool:
        """Whether quantized weights become constants of the artifact of this graph, or (None) of any graph.

        Called before plans are made, and then for each graph. Plans for a target that bakes have few and large calls: of what
        `b.choose` leaves open, they take the candidate with the largest tiles.

        Default: False, weights are operands.
        """
        return False

    def rounding(self, options: Any) -> float:
        """Returns the largest relative error of a loss against float32.

        Called when the options are read, and when golden vectors are computed. These allow for the largest of all targets.

        Default: 0, it computes in float32.
        """
        return 0.0

    def refuses(self, options: Any, optimizer: Optimizer, settings: Any) -> Problem | None:
        """Returns why this target refuses the method with these settings, or None.

        Called for each method when the options are read, before a model is. What only a graph shows is an Unsupported of `lower`.

        Default: None, it takes every method.
        """
        return None

    def ready(self, options: Any) -> None:
        """Raises the MissingDependency or ConfigError that `lower` would raise because of a compiler that users install themselves.

        Called by `build` and `estimate` before they spend minutes on weights.

        Default: nothing is missing.
        """

    def feature(self, tensor: TensorSpec, options: Any) -> Feature | None:
        """Returns what operands and results of this dtype and shape are to an artifact, or None for the same tensor.

        Called once for each dtype and shape when the manifest is written.

        Default: None, artifacts take and give the graph's tensors.
        """
        return None

    def engine(self, options: Any) -> Callable[[], Any] | None:
        """Returns what makes an engine of the core in this process, derived from `bespoke.core.torch_engine.TorchEngine`.

        Called for the GPU's target when a bundle is opened in Python, and by the contract suite for targets without artifacts.
        None: there is no device for it here. Raises MissingDependency where there is a device and a package is missing.

        Default: None, no engine in Python.
        """
        return None
