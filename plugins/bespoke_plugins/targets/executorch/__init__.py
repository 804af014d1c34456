# SPDX-License-Identifier: Apache-2.0
"""Target `executorch`: graphs as `.pte` programs for the device core, XNNPACK taking the float arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bespoke.contracts import Artifact, Baked, Costs, Graph, Settings, Target, hookimpl

FP16_ROUNDING = 2e-3  # of a loss; seen with stories260K in the NPU's emulator: 2e-4


class ExecuTorchOptions(Settings):
    """delegate: "xnnpack", the processor; or "qnn", Qualcomm's NPU: matrix products of forward graphs in fp16, with the weights in
    their artifacts, for methods that train by forward passes alone. soc: of the phone, as ExecuTorch's QcomChipset names it.
    weights: of the NPU's programs, "fp16", or "int4" as in the bundle: smaller, and more for the NPU to do."""

    delegate: Literal["xnnpack", "qnn"] = "xnnpack"
    soc: str = "SM8650"
    weights: Literal["fp16", "int4"] = "fp16"


class ExecuTorch:
    """ExecuTorch 1.5 with XNNPACK and our own int4 operators."""

    name = "executorch"
    Options = ExecuTorchOptions
    # Whole process: code, libraries, the plan and the programs' own structures. To be measured on the core.
    costs = Costs(constant_bytes=6_000_000, record_bytes=100, results_in_place=True)

    def bakes(self, options: ExecuTorchOptions, graph: Graph | None = None) -> bool:
        if options.delegate != "qnn":
            return False
        nodes = [] if graph is None else graph.module.graph.nodes
        return all(str(node.target) != "bespoke.embedding_int4.default" for node in nodes)  # a look-up stays on the processor

    def rounding(self, options: ExecuTorchOptions) -> float:
        return FP16_ROUNDING if options.delegate == "qnn" else 0.0

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
        if options.delegate == "qnn":
            from bespoke_plugins.targets.executorch.qnn.lowering import compile_for_npu

            compiled = compile_for_npu(graph, options.soc, options.weights, {} if baked is None else baked.operands)
        else:
            compiled = compile_graph(graph)
        path = folder / f"{graph.name}-{(graph if baked is None else baked).key[:16]}.pte"
        path.write_bytes(compiled.data)
        return Artifact(path, compiled.workspace_bytes, compiled.xnnpack_bytes)

    def open(self, path: Path, options: ExecuTorchOptions) -> Callable[..., tuple[Any, ...]] | None:
        from bespoke_plugins.targets.executorch.run import open_program

        return open_program(path)


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(ExecuTorch())
