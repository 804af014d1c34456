# SPDX-License-Identifier: Apache-2.0
"""Lowers a forward graph with the quantized weights of its `linear_int4` operators inside XNNPACK's delegates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from bespoke.errors import Unsupported
from bespoke.graph import Graph
from bespoke.ops import LINEAR_INT4
from bespoke_plugins.targets.executorch.kernels import BACKWARD
from bespoke_plugins.targets.executorch.lowering import Lowering
from bespoke_plugins.targets.executorch.qb4w.weight import GROUP, PRODUCT, SHIFTS, Int4Weight


def takes(graph: Graph) -> bool:
    """Whether the graph has products for XNNPACK and no other use of quantized weights, which could not read constants."""
    used = {str(node.target) for node in graph.module.graph.nodes if str(node.target).startswith("bespoke.")}
    return LINEAR_INT4 in used and all("int4" not in name or name == LINEAR_INT4 for name in used)


def check_forward(graph: Graph) -> None:
    """Raises Unsupported for a backward pass."""
    for node in graph.module.graph.nodes:
        if str(node.target) in BACKWARD:
            raise Unsupported(
                f"Graph '{graph.name}', operator {node.target}",
                got="a graph of a backward pass",
                expected="forward graphs, of evaluation, answers and methods that train by forward passes: XNNPACK has no product "
                "with the transpose of an int4 weight",
                next_step="Choose such a method (mezo), or leave out products = 'xnnpack_qb4w'",
            )


class Int4Lowering(Lowering):
    """Lowers one graph. `held`: operands that become part of the program, by name. `weights`: those that products use."""

    def __init__(self, graph: Graph, held: Mapping[str, np.ndarray]) -> None:
        super().__init__(graph)
        nodes = zip(graph.inputs, super().operands, strict=True)
        self.held = {node: held[spec.name] for spec, node in nodes if spec.name in held}
        self.weights: list[Int4Weight] = []

    @property
    def operands(self) -> list[torch.fx.Node]:
        return [node for node in super().operands if node not in self.held]

    def _call(self) -> Any:
        if str(self.node.target) != LINEAR_INT4:
            return super()._call()
        x, codes, scales, start, columns = self.node.args
        if not {codes, scales, start} <= {*self.held, None}:  # weights that stay operands use our own kernel
            return super()._call()
        first, groups = 0 if start is None else int(self.held[start]) // GROUP, -(-columns // GROUP)
        half = GROUP // 2
        weight = Int4Weight.of(
            self.held[codes][:, first * half : (first + groups) * half], self.held[scales][:, first : first + groups]
        )
        self.weights.append(weight)
        rows = self.tape.pad(self._argument(x), (0, 0), (0, weight.shape[1] - columns))  # weights in the padding are 0
        shape = (rows.shape[0], weight.shape[0])
        product = self.tape.node(PRODUCT, [rows], shape, weight=weight)
        sums = self.tape.sum(self.tape.view(rows, (rows.shape[0] * groups, GROUP)), [1], keep=False)
        sums = self.tape.view(sums, (rows.shape[0], groups))
        return self.tape.binary("add", product, self.tape.node(SHIFTS, [sums], shape, weight=weight))
