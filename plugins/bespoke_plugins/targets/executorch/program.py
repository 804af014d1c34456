# SPDX-License-Identifier: Apache-2.0
"""A graph as the bytes of an ExecuTorch program, and the memory that a call of it takes."""

from __future__ import annotations

import copy
import logging
import warnings
from functools import cache
from typing import Any

import torch

from bespoke.errors import MissingDependency
from bespoke.graph.trace import Graph
from bespoke.ops import OUT_VARIANTS
from bespoke_plugins.targets.executorch.rewrite import xnn_friendly


@cache
def _out_variants() -> torch.library.Library:
    library = torch.library.Library("bespoke", "FRAGMENT")
    for schema in OUT_VARIANTS:
        library.define(schema)
    return library


def compile_graph(graph: Graph) -> tuple[bytes, int]:
    logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
            from executorch.exir.passes.memory_planning_pass import MemoryPlanningPass
    except ImportError:
        raise MissingDependency.of("Target 'executorch'", "executorch", "executorch") from None
    _out_variants()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = xnn_friendly(copy.deepcopy(graph.module))
        program = torch.export.export(module, graph.example_inputs(), strict=False)
        edge = to_edge_transform_and_lower(
            program, partitioner=[XnnpackPartitioner()], compile_config=EdgeCompileConfig(_check_ir_validity=False)
        )
        planning: Any = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
        done = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    planned = sum(done.executorch_program.execution_plan[0].non_const_buffer_sizes)
    return done.buffer, planned + graph.workspace_bytes + (1 << 20)
