# SPDX-License-Identifier: Apache-2.0
"""Target `executorch`: graphs as `.pte` programs for the device core, XNNPACK taking the float arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke.contracts import Artifact, Costs, Graph, Settings, Target, hookimpl


class ExecuTorchOptions(Settings):
    """There is nothing to set."""


class ExecuTorch:
    """ExecuTorch 1.5 with XNNPACK and our own int4 operators."""

    name = "executorch"
    Options = ExecuTorchOptions
    # Whole process: code, libraries, the plan and the programs' own structures. To be measured on the core.
    costs = Costs(constant_bytes=6_000_000, record_bytes=100, results_in_place=True)

    def lower(self, graph: Graph, folder: Path, options: ExecuTorchOptions) -> Artifact:
        from bespoke_plugins.targets.executorch.program import compile_graph
        from bespoke_plugins.targets.executorch.vendor import load_executorch

        load_executorch()
        compiled = compile_graph(graph)
        path = folder / f"{graph.name}-{graph.key[:16]}.pte"
        path.write_bytes(compiled.data)
        return Artifact(path, compiled.workspace_bytes, compiled.xnnpack_bytes)

    def open(self, path: Path, options: ExecuTorchOptions) -> Callable[..., tuple[Any, ...]] | None:
        from bespoke_plugins.targets.executorch.run import open_program

        return open_program(path)


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(ExecuTorch())
