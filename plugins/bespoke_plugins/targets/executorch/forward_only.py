# SPDX-License-Identifier: Apache-2.0
"""A module that trains by `forward` alone as one `.pte`, for apps with ExecuTorch's own runtime and nothing of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bespoke.contracts import quiet_imports
from bespoke_plugins.targets.executorch.vendor import load_executorch


def write_forward_only(
    path: Path, methods: Mapping[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]], decompositions: Mapping[Any, Any],
    partitioners: Sequence[Any] | None = None,
) -> Path:  # fmt: skip
    """Writes `path`: each method by name, as a module and operands of the right shapes. Buffers that a method changes are one for
    all methods; what is in them before the first call is not said.

    decompositions: of operators that the runtime lacks, into those that it has
    partitioners:   of ExecuTorch, for what is delegated; by default to XNNPACK
    """
    load_executorch()
    with quiet_imports("executorch", "root"):
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
        from executorch.exir.passes import MemoryPlanningPass
    table = {**torch.export.default_decompositions(), **decompositions}
    exported = {
        name: torch.export.export(module, operands, strict=False).run_decompositions(table)
        for name, (module, operands) in methods.items()
    }
    edge = to_edge_transform_and_lower(
        exported, partitioner=[XnnpackPartitioner()] if partitioners is None else list(partitioners),
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )  # fmt: skip
    program = edge.to_executorch(
        ExecutorchBackendConfig(
            emit_mutable_buffer_names=True, memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
        )
    )  # fmt: skip
    path.write_bytes(program.buffer)
    return path
