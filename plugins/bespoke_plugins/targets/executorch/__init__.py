# SPDX-License-Identifier: Apache-2.0
"""Target `executorch`: graphs as `.pte` programs for the device core. XNNPACK computes the float arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from bespoke.contracts import Artifact, Baked, Costs, Graph, Optimizer, Problem, Promise, Settings, Target, hookimpl
from bespoke.ops import EMBEDDING_INT4

FP16_ROUNDING = 2e-3  # bound on a loss's relative error; stories260K in the NPU's emulator showed 2e-4
INT8_ROUNDING = 1e-2  # bound for a loss and a difference of two losses; stories260K showed 6e-3 for each
# The least epsilon for each promise at which a method's estimates followed those in fp32. Other promises were not measured.
# One-sided differences and curvatures are smaller than two-sided differences, so rounding hides them earlier.
INT8_EPSILONS: Mapping[Promise, float] = {  # docs/how_to/use_int8_products.md
    "two_sided_loss_difference": 1e-2,
    "normalized_loss_difference": 3e-2,
    "curvature_scaled_difference": 3e-2,
}
NPU_EPSILONS: Mapping[Promise, float] = {  # tests/qnn/test_emulated.py
    "two_sided_loss_difference": 1e-3,
    "normalized_loss_difference": 1e-2,
    "curvature_scaled_difference": 1e-2,
}


class ExecuTorchOptions(Settings):
    """Options of `executorch`.

    Args:
        delegate: "xnnpack" for the processor or "qnn" for Qualcomm's NPU. The NPU computes matrix products of forward graphs in
            fp16, with the weights in its artifacts. It suits methods that train by forward passes alone.
        soc: the phone's chip by its name in ExecuTorch's QcomChipset.
        products: how the processor multiplies by int4 weights. "int4" is exact and uses our own kernels. "xnnpack_qb4w" is faster:
            it rounds activations to int8 and has the weights in its artifacts. It suits methods that train by forward passes alone.
        weights: the format of weights in the NPU's programs: "fp16", or "int4" as in the bundle, which is smaller and slower.
    """

    delegate: Literal["xnnpack", "qnn"] = "xnnpack"
    soc: str = "SM8650"
    products: Literal["int4", "xnnpack_qb4w"] = "int4"
    weights: Literal["fp16", "int4"] = "fp16"

    @model_validator(mode="after")
    def _of_this_delegate(self) -> Self:
        if self.delegate == "qnn" and self.products != "int4":
            raise ValueError("products = 'xnnpack_qb4w' is for delegate = 'xnnpack': the NPU has products of its own")
        if self.delegate == "xnnpack" and self.weights != "fp16":
            raise ValueError("weights = 'int4' is for delegate = 'qnn': on the processor they are int4 in any case")
        return self


class ExecuTorch(Target):
    """ExecuTorch 1.5 with XNNPACK and our own int4 operators."""

    name = "executorch"
    Options = ExecuTorchOptions
    # The whole process: code, libraries, the plan and the programs' own structures. To be measured on the core.
    costs = Costs(constant_bytes=6_000_000, record_bytes=100, results_in_place=True)

    def bakes(self, options: ExecuTorchOptions, graph: Graph | None = None) -> bool:
        if options.products == "xnnpack_qb4w":
            from bespoke_plugins.targets.executorch.qb4w.lowering import takes

            return graph is None or takes(graph)
        if options.delegate != "qnn":
            return False
        nodes = [] if graph is None else graph.module.graph.nodes
        return all(str(node.target) != EMBEDDING_INT4 for node in nodes)  # an embedding look-up stays on the processor

    def rounding(self, options: ExecuTorchOptions) -> float:
        if options.products == "xnnpack_qb4w":
            return INT8_ROUNDING
        return FP16_ROUNDING if options.delegate == "qnn" else 0.0

    def refuses(self, options: ExecuTorchOptions, optimizer: Optimizer, settings: Settings) -> Problem | None:
        int8 = options.products == "xnnpack_qb4w"
        if not int8 and options.delegate != "qnn":
            return None
        chosen, lacks = ("products = 'xnnpack_qb4w'", "XNNPACK") if int8 else ("delegate = 'qnn'", "the NPU's delegate")
        if optimizer.promises == "exact_gradients":
            return Problem(
                f"{chosen} for a method with a backward pass",
                f"a method of forward passes alone (mezo, prge): {lacks} has no "
                "product with the transpose of an int4 weight",
                f"Choose such a method, or leave out {chosen}",
            )
        measured = INT8_EPSILONS if int8 else NPU_EPSILONS
        least = measured.get(optimizer.promises) if optimizer.promises else None
        epsilon = getattr(settings, "epsilon", None)
        if least is None or epsilon is None:
            return Problem(
                f"{chosen} for a method that promises {optimizer.promises or 'nothing'}",
                f"one that was measured with it, which promises {' or '.join(measured)}: what is rounded may drown its estimates",
                f"Choose such a method, or leave out {chosen}",
            )
        if epsilon >= least:
            return None
        return Problem(
            f"epsilon = {epsilon:g} with {chosen}",
            f"at least {least:g}: below it, {'int8' if int8 else 'fp16'} was not seen "
            "to leave enough of the differences of losses",
            f"Set epsilon = {least:g} or more, or leave out {chosen}",
        )

    def ready(self, options: ExecuTorchOptions) -> None:
        from bespoke_plugins.targets.executorch.vendor import load_executorch

        load_executorch()
        if options.delegate == "qnn":
            from bespoke_plugins.targets.executorch.qnn.compile import check_compiler

            check_compiler(options.soc)

    def lower(self, graph: Graph, folder: Path, options: ExecuTorchOptions, baked: Baked | None = None) -> Artifact:
        from bespoke_plugins.targets.executorch.program import compile_graph
        from bespoke_plugins.targets.executorch.vendor import load_executorch

        load_executorch()
        kept_bytes = cache_bytes = 0
        if options.products == "xnnpack_qb4w":
            from bespoke_plugins.targets.executorch.qb4w.lowering import Int4Lowering, check_forward
            from bespoke_plugins.targets.executorch.qb4w.weight import open_bytes, packed_bytes

            check_forward(graph)
            lowering = Int4Lowering(graph, {} if baked is None else baked.operands)
            compiled = compile_graph(graph, lowering)
            kept_bytes, cache_bytes = open_bytes(lowering.weights), packed_bytes(lowering.weights)
        elif options.delegate == "qnn":
            from bespoke_plugins.targets.executorch.qnn.lowering import compile_for_npu

            compiled = compile_for_npu(graph, options.soc, options.weights, {} if baked is None else baked.operands)
        else:
            compiled = compile_graph(graph)
        path = folder / f"{graph.name}-{(graph if baked is None else baked).key[:16]}.pte"
        path.write_bytes(compiled.data)
        return Artifact(
            path, compiled.workspace_bytes, compiled.xnnpack_bytes, kept_bytes, cache_bytes, compiled.delegates
        )

    def open(self, path: Path, options: ExecuTorchOptions) -> Callable[..., tuple[Any, ...]] | None:
        from bespoke_plugins.targets.executorch.run import open_program

        return open_program(path)


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(ExecuTorch())
