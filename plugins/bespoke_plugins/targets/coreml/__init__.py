# SPDX-License-Identifier: Apache-2.0
"""Target `coreml`: each graph as a Core ML spec, which an app on iOS or macOS opens with `MLModelAsset(specification:)`.

Weights are operands as with every target, so one spec serves every block. Load a spec of fp32 with `computeUnits = .cpuOnly`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bespoke.contracts import Artifact, Baked, Costs, Feature, Graph, Settings, Target, TensorSpec, hookimpl

FP16_ROUNDING = 2e-3  # bound on a loss's relative error; the interpreter, which rounds each operation, showed 1e-4


class CoreMLOptions(Settings):
    """Options of `coreml`.

    Args:
        weights: how packed codes reach a spec. "int32" (iOS 18) and "int8" (iOS 26) are views of their bytes. "baked" (iOS 18)
            makes them constants of many more specs, which shows what that costs.
        precision: "fp32", or "fp16" for products of forward graphs (evaluation, answers, zeroth-order methods).
    """

    weights: Literal["int32", "int8", "baked"] = "int32"
    precision: Literal["fp32", "fp16"] = "fp32"


class CoreML(Target):
    """ML programs for iOS 18 and later."""

    name = "coreml"
    Options = CoreMLOptions
    # The core's memory for the plan and its records (measured on Linux with ExecuTorch) plus the open specs: about 10 kB each and
    # about a hundred in a bundle. Core ML writes results into its own memory, so they are copied. The temporaries of a call are
    # mostly decoded weights and are estimated from each spec (`workspace_bytes`). Core ML's own memory and speed were never
    # measured on a device. The relative speeds are those of a processor.
    costs = Costs(constant_bytes=7_000_000, record_bytes=100, results_in_place=False)

    def bakes(self, options: CoreMLOptions, graph: Graph | None = None) -> bool:
        return options.weights == "baked"

    def rounding(self, options: CoreMLOptions) -> float:
        return FP16_ROUNDING if options.precision == "fp16" else 0.0

    def lower(self, graph: Graph, folder: Path, options: CoreMLOptions, baked: Baked | None = None) -> Artifact:
        from bespoke_plugins.targets.coreml.vendor import load_coremltools

        load_coremltools()
        from bespoke_plugins.targets.coreml.lowering import Lowering
        from bespoke_plugins.targets.coreml.precision import half_nodes
        from bespoke_plugins.targets.coreml.spec import compiled

        half = half_nodes(graph) if options.precision == "fp16" else frozenset()
        lowering = Lowering(graph, options.weights, half, {} if baked is None else baked.operands)
        spec = compiled(lowering.program(), lowering.opset, lowering.inputs, lowering.outputs)
        path = folder / f"{graph.name}-{(graph if baked is None else baked).key[:16]}.mlmodel"
        path.write_bytes(spec.data)
        return Artifact(path, spec.workspace_bytes)

    def feature(self, tensor: TensorSpec, options: CoreMLOptions) -> Feature | None:
        from bespoke_plugins.targets.coreml.features import NUMPY, features_of

        (feature,) = features_of([tensor], "x", options.weights)
        if feature.view == "same" and feature.shape == tensor.shape:
            return None
        return Feature(NUMPY[feature.dtype].__name__, feature.shape, feature.view)

    def open(self, path: Path, options: CoreMLOptions) -> Callable[..., tuple[Any, ...]] | None:
        from bespoke_plugins.targets.coreml.run import open_spec

        return open_spec(path)


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(CoreML())
