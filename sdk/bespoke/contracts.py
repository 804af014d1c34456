# SPDX-License-Identifier: Apache-2.0
"""What a plugin is: an optimizer writes a training step with the builder, a target compiles graphs. One or two methods each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np

from bespoke.bundle.file_names import file_name_problem
from bespoke.config import Scalar, Settings, settings_from
from bespoke.errors import ConfigError, Unsupported, shown
from bespoke.graph import Batch, Graph, StepBuilder, TensorSpec, Value
from bespoke.hookspecs import hookimpl
from bespoke.methods.zeroth_order import CurvatureOptions, NormalizedOptions, ZerothOrderOptions
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import TORCH_COSTS, Costs, Speed
from bespoke.system.quiet_imports import quiet_imports

__all__ = [
    "PROMISED_OPTIONS",
    "TORCH_COSTS",
    "Artifact",
    "Baked",
    "BakingTarget",
    "Batch",
    "CompilingTarget",
    "Costs",
    "DescribingTarget",
    "EngineTarget",
    "Feature",
    "Graph",
    "ModelSpec",
    "Optimizer",
    "Problem",
    "Promise",
    "RefusingTarget",
    "RoundingTarget",
    "Scalar",
    "Settings",
    "Speed",
    "StepBuilder",
    "Target",
    "TensorSpec",
    "Unsupported",
    "Value",
    "VendorTarget",
    "hookimpl",
    "quiet_imports",
]


@dataclass(frozen=True)
class Artifact:
    """A compiled graph on disk, and what one call of it takes in addition to its operands, in bytes.

    `workspace_bytes` is free again after the call, in one region for all graphs. `engine_bytes` is what the engine allocates itself
    and keeps: it too holds only the most that a graph has needed, so the two largest add up, and they may be of different graphs.
    `kept_bytes` is the anonymous memory of a baked artifact that is open, as all of a plan are. `cache_bytes` is what
    the engine writes into its cache folder on the device, for all artifacts with the same weights once. `delegates`: what computes
    parts of it for the engine, by the engine's names; the manifest says it, so that a device knows what it needs.
    """

    path: Path
    workspace_bytes: int
    engine_bytes: int = 0
    kept_bytes: int = 0
    cache_bytes: int = 0
    delegates: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Baked:
    """Weights that become part of an artifact, where the graph has operands: for a target that bakes them.

    `key`: 64 hexadecimal digits that stand for graph, weights, rows and columns; the artifact's file is named after it. `operands`,
    by the graph's names: codes (uint8) and scales (fp16) of the rows that the call uses, with all columns, and column_start (int64,
    a scalar) where the graph cuts columns. What is not among them the artifact takes, in the graph's order.
    """

    key: str
    operands: Mapping[str, np.ndarray]


class Feature(NamedTuple):
    """A tensor as an artifact takes or gives it, where that is another one than the graph's. `dtype`: as numpy names it. `view`:
    how one becomes the other; `bespoke.bundle.manifest.FeatureRecord` says what each means."""

    dtype: Literal["float32", "float16", "uint8", "int32", "int64", "int8"]
    shape: tuple[int, ...]
    view: Literal["same", "bytes", "value"]


Promise = Literal[
    "exact_gradients", "two_sided_loss_difference", "normalized_loss_difference", "curvature_scaled_difference"
]
"""What golden vectors hold a method to, on every device.

exact_gradients: what it gives to `bespoke.methods.update`, or sums in `b.accumulator`, are the gradients of the batch's mean loss,
for every piece of the adapter that it stores. The update rule may be any.
The others: it records the numbers and takes the step that the options describe from which its own derive (PROMISED_OPTIONS).
"""
PROMISED_OPTIONS: Mapping[str, type[Settings]] = {
    "two_sided_loss_difference": ZerothOrderOptions,
    "normalized_loss_difference": NormalizedOptions,
    "curvature_scaled_difference": CurvatureOptions,
}


@runtime_checkable
class Optimizer(Protocol):
    """How gradients (or what stands for them) come about."""

    name: str

    @property
    def promises(self) -> Promise | None:
        """None: nothing but the loss and the answers of the model are known of it. A class attribute does."""

    @property
    def Options(self) -> type[Settings]:
        """Pydantic model of the options; a class attribute does."""

    def train_step(self, b: StepBuilder, model: ModelSpec, options: Any) -> None:
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


@runtime_checkable
class BakingTarget(CompilingTarget, Protocol):
    """A target whose runtime wants weights as constants: an artifact for each graph and each set of weights that it is called with.

    Plans are made with few and large calls for it: of what `b.choose` leaves open, the candidate with the largest tiles.
    """

    def bakes(self, options: Any, graph: Graph | None = None) -> bool:
        """Whether it does so with these options, of this graph or (None) of any; where not, it is as any other."""

    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Artifact:
        """Once for each key. `baked` is None for a graph without quantized weights, and where the target does not bake."""


@runtime_checkable
class RoundingTarget(CompilingTarget, Protocol):
    """A target whose artifacts compute in less than float32."""

    def rounding(self, options: Any) -> float:
        """By what share losses may be off against float32; 0: not at all. Golden vectors allow for the largest of all targets."""


@runtime_checkable
class RefusingTarget(CompilingTarget, Protocol):
    """A target that not every method may be built for, with some of its options."""

    def refuses(self, options: Any, optimizer: Optimizer, settings: Any) -> Problem | None:
        """What keeps a method with these settings from it, or None. Asked when only settings have been read; for what is found in
        graphs there is Unsupported."""


@runtime_checkable
class VendorTarget(CompilingTarget, Protocol):
    """A target whose compiler users install themselves, so that it may not be there, or not be the one that is needed."""

    def ready(self, options: Any) -> None:
        """Raises what `lower` would raise for that (MissingDependency, ConfigError). `build` and `estimate` ask before they spend
        minutes on weights."""


@runtime_checkable
class DescribingTarget(CompilingTarget, Protocol):
    """A target whose artifacts take other tensors than the graph's: the manifest says which, once for each type and shape."""

    def feature(self, tensor: TensorSpec, options: Any) -> Feature | None:
        """What every operand or result of this dtype and shape is to an artifact; None: the same tensor."""


@runtime_checkable
class EngineTarget(Target, Protocol):
    """A target without artifacts that runs the graphs of a bundle its own way, in the process that asks."""

    def engine(self, options: Any) -> Callable[[], Any] | None:
        """What makes an engine of the core (`bespoke.core.torch_engine.TorchEngine`, derived), or None where there is no device for
        it. MissingDependency where there is one, and a package is missing."""


def bakes(target: Target, options: Any, graph: Graph | None = None) -> bool:
    """Whether quantized weights become part of what a target makes of this graph, or of any."""
    return isinstance(target, BakingTarget) and target.bakes(options, graph)


def rounding(target: Target, options: Any) -> float:
    """By what share the losses of a target may be off, in addition to what float32 rounds away."""
    return target.rounding(options) if isinstance(target, RoundingTarget) else 0.0


def check_ready(target: Target, options: Any) -> None:
    """Raises what keeps the target from compiling anything at all."""
    if isinstance(target, VendorTarget):
        target.ready(options)


# ---- what is checked before a plugin does anything -----------------------------------------------------------------------

_NEEDED = {"optimizer": ("name", "promises", "Options", "train_step"), "target": ("name", "costs", "Options")}
_METHODS = {"optimizer": ("train_step",), "target": ("lower", "open")}


class Problem(NamedTuple):
    """As an error says it, but for what it is about."""

    got: str
    expected: str
    next_step: str


def problem_of(plugin: Any, kind: Literal["optimizer", "target"], options: Settings | None = None) -> Problem | None:
    """What keeps a plugin from being one, with `options` or its defaults. Discovery and the contract suites ask the same."""
    needed = _NEEDED[kind]
    missing = [name for name in needed if not hasattr(plugin, name)]
    if missing:
        wanted = f"{', '.join(needed[:-1])} and {needed[-1]}"
        return Problem(f"no attribute {', '.join(missing)}", wanted, f"See bespoke.contracts.{kind.title()}")
    if kind == "target" and hasattr(plugin, "lower") != hasattr(plugin, "open"):
        return Problem("one of lower and open", "both, or neither for a target without artifacts", "Add the other")
    idle = [name for name in _METHODS[kind] if hasattr(plugin, name) and not callable(getattr(plugin, name))]
    if idle:
        return Problem(
            f"{idle[0]} = {shown(getattr(plugin, idle[0]))}", "a method", f"See bespoke.contracts.{kind.title()}"
        )
    name = plugin.name
    if not isinstance(name, str) or file_name_problem(name) or "/" in name:
        return Problem(f"name = {shown(name)}", "letters, digits and _.@+=-, which name a file too", "Change the name")
    own = _promise_problem(plugin) if kind == "optimizer" else _costs_problem(plugin)
    return _options_problem(plugin.Options, f"{kind}s.{name}", options) or own


def _options_problem(kind: Any, subject: str, given: Settings | None) -> Problem | None:
    if not (isinstance(kind, type) and issubclass(kind, Settings)):
        return Problem(
            f"Options = {shown(kind)}", "a subclass of bespoke.contracts.Settings", "Derive it from Settings"
        )
    try:
        options = settings_from(kind, subject, {}) if given is None else given
    except ConfigError as error:
        return Problem(f"options without a default: {error}", "a default for every option", "Give the field a default")
    try:
        settings_from(kind, subject, {"no_such_option": 1})
    except ConfigError:
        pass
    else:
        return Problem(
            "an unknown option taken in silence", "a ConfigError that names it", "Keep extra='forbid' of Settings"
        )
    try:
        json.dumps(options.model_dump())
    except TypeError as error:
        return Problem(f"options that JSON cannot hold: {error}", "numbers, texts and lists", "Change the field")
    return None


def _promise_problem(plugin: Any) -> Problem | None:
    promise, known = plugin.promises, get_args(Promise)
    if promise is not None and promise not in known:
        words = f"{', '.join(map(repr, known))} or None"
        return Problem(
            f"promises = {shown(promise)}", words, "Set promises = None if golden vectors are to hold it to nothing"
        )
    options = PROMISED_OPTIONS.get(promise or "")
    if options is not None and not (isinstance(plugin.Options, type) and issubclass(plugin.Options, options)):
        return Problem(
            f"promises = '{promise}' with Options = {shown(plugin.Options)}",
            f"Options derived from bespoke.methods.{options.__name__}",
            "Derive them: their fields say what the differences are; or set promises = None",
        )
    return None


def _costs_problem(plugin: Any) -> Problem | None:
    costs = plugin.costs
    taken = isinstance(costs, Costs) and min(costs.constant_bytes, costs.record_bytes) >= 0
    if taken and min(vars(costs.speed).values()) > 0:
        return None
    return Problem(
        f"costs = {shown(costs)}",
        "bespoke.contracts.Costs of bytes from 0 up and speeds above 0",
        "Measure what the runtime takes when it runs nothing; TORCH_COSTS are those of the torch runtime",
    )
