# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph as a program of three parts: before the NPU's region, the region, and after it. XNNPACK and kernels compute the
first and the last part as in any program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bespoke.graph import Graph
from bespoke_plugins.targets.executorch.lowering import Lowering
from bespoke_plugins.targets.executorch.program import REGION, Compiled, compile_graph
from bespoke_plugins.targets.executorch.qnn.binary import Binary
from bespoke_plugins.targets.executorch.qnn.compile import compile_region
from bespoke_plugins.targets.executorch.qnn.dense import dense_graph
from bespoke_plugins.targets.executorch.qnn.int4 import with_int4_products
from bespoke_plugins.targets.executorch.qnn.region import Region, region_of
from bespoke_plugins.targets.executorch.tape import Op, Value

BACKEND = "QnnBackend"


def compile_for_npu(graph: Graph, soc: str, weights: str, baked: Mapping[str, np.ndarray]) -> Compiled:
    """Compiles a graph. `weights`: "fp16" or "int4". A graph without matrix products is compiled as for the processor."""
    dense = dense_graph(graph, baked)
    region = region_of(dense.module)
    if region is None:
        return compile_graph(graph)
    if weights == "int4":
        region = replace(region, module=with_int4_products(region.module, dense.weights))
    described = replace(graph, module=dense.module)
    return compile_graph(described, _NpuLowering(described, region, soc))


@dataclass(frozen=True)
class _Delegate:
    binary: Binary

    def arguments(self, op: Op) -> dict[str, Any]:
        """Arguments for `_Program._delegated`."""
        tensors = [op.inputs[i] for i in self.binary.inputs] + [op.outputs[i] for i in self.binary.outputs]
        return {"backend": BACKEND, "data": self.binary.data, "settings": self.binary.settings, "tensors": tensors}


class _NpuLowering(Lowering):
    def __init__(self, graph: Graph, region: Region, soc: str) -> None:
        super().__init__(graph)
        self.region = region
        self.soc = soc

    def attention(self) -> None:
        """The NPU computes attention as its other products."""

    def calls(self, nodes: Iterable[torch.fx.Node]) -> None:
        nodes, after = list(nodes), self.region.after
        super().calls([node for node in nodes if node not in after and node not in self.region.nodes])
        self._region()
        super().calls([node for node in nodes if node in after])

    def _region(self) -> None:
        binary = compile_region(self.region, self.soc, self.graph.name)
        operands = [self.tape.stored(self.values[node], torch.float32) for node in self.region.inputs]
        op = Op(REGION, operands, attributes={"delegate": _Delegate(binary)})
        op.outputs = [
            Value(tuple(node.meta["val"].shape), torch.float32, "float", op=op) for node in self.region.outputs
        ]
        self.tape.ops.append(op)
        self.values |= zip(self.region.outputs, op.outputs, strict=True)
