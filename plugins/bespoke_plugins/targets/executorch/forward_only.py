# SPDX-License-Identifier: Apache-2.0
"""Writes a module that trains by `forward` alone as one `.pte`, for apps with ExecuTorch's own runtime and without our core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bespoke.contracts import quiet_imports
from bespoke_plugins.targets.executorch.vendor import load_executorch

Methods = Mapping[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]
TAG = "delegation_tag"  # ExecuTorch's tag for the nodes of one delegate


def write_forward_only(
    path: Path, methods: Methods, decompositions: Mapping[Any, Any], partitioners: Sequence[Any] | None = None
) -> Path:
    """Writes `path` with the methods by name, each a module and operands of the right shapes.

    All methods share the buffers that they change. The content of a buffer before the first call is undefined.

    Args:
        decompositions: replace operators that the runtime lacks by those that it has.
        partitioners: ExecuTorch's partitioners for the delegated part, by default XNNPACK's. The computation of the buffers is
            never delegated: a delegate may compute in less than float32 and would round an update away.
    """
    edge = lowered(methods, decompositions, partitioners)
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass

    program = edge.to_executorch(
        ExecutorchBackendConfig(
            emit_mutable_buffer_names=True,
            memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
        )
    )
    path.write_bytes(program.buffer)
    return path


def lowered(methods: Methods, decompositions: Mapping[Any, Any], partitioners: Sequence[Any] | None = None) -> Any:
    """The program before it is written: ExecuTorch's EdgeProgramManager."""
    load_executorch()
    with quiet_imports("executorch", "root"):
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    table = {**torch.export.default_decompositions(), **decompositions}
    exported = {
        name: torch.export.export(module, operands, strict=False).run_decompositions(table)
        for name, (module, operands) in methods.items()
    }
    chosen = [XnnpackPartitioner()] if partitioners is None else partitioners
    return to_edge_transform_and_lower(
        exported,
        partitioner=[_without_state(partitioner) for partitioner in chosen],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )


def _without_state(inner: Any) -> Any:
    """A partitioner that delegates what `inner` does except the computation of a state."""
    from executorch.exir.backend.partitioner import Partitioner, PartitionResult

    class WithoutState(Partitioner):
        def partition(self, exported_program: Any) -> Any:
            partition = inner.partition(exported_program)
            graph = partition.tagged_exported_program.graph
            # Everything that they depend on stays as well. So it never waits for a delegate, and no cycle can arise.
            for node in update_of(partition.tagged_exported_program):
                node.meta.pop(TAG, None)
            for node in graph.nodes:  # a constant belongs to a delegate that is its only reader
                if node.op == "placeholder" and any(user.meta.get(TAG) != node.meta.get(TAG) for user in node.users):
                    node.meta.pop(TAG, None)
            left = {node.meta[TAG] for node in graph.nodes if TAG in node.meta}
            tags = {tag: spec for tag, spec in partition.partition_tags.items() if tag in left}
            return PartitionResult(tagged_exported_program=partition.tagged_exported_program, partition_tags=tags)

        def ops_to_not_decompose(self, ep: Any) -> Any:
            return inner.ops_to_not_decompose(ep)

        def transform_for_pre_decomposition(self, exported_program: Any) -> Any:
            return inner.transform_for_pre_decomposition(exported_program)

    return WithoutState()


def update_of(program: Any) -> set[Any]:
    """Nodes of a program's graph that compute the new values of its buffers."""
    mutated = program.graph_signature.buffers_to_mutate
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    waiting, nodes = [node for node in output.args[0] if node is not None and node.name in mutated], set()
    while waiting:
        node = waiting.pop()
        if node not in nodes:
            nodes.add(node)
            waiting += node.all_input_nodes
    return nodes
