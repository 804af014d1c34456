# SPDX-License-Identifier: Apache-2.0
"""Products with the bundle's int4 weights for an NPU that has one scale a channel instead of one for 32 weights.

A product becomes a grouped convolution with a group for each GROUP of inputs, and then a sum over these groups:

    y[r, o] = sum_g  s[o, g] sum_i c[o, g, i] x[r, g, i]      r: rows, o: outputs, g: groups, i: inputs of a group

The convolution has a channel for each (g, o) with the scale s[o, g]. So weights stay exact to the last bit and activations stay
fp16. The cost is a value for each (r, g, o) within the NPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

GROUP = 32
OUTPUTS = 32  # or a multiple
LEAST, MOST = -8, 7
PRODUCT = "aten.mm.default"


@dataclass(frozen=True)
class Int4Weight:
    """`codes` int8 [outputs, groups * GROUP] and `scales` float32 [outputs, groups]. A product reads `columns` of them."""

    codes: torch.Tensor
    scales: torch.Tensor
    columns: int

    @staticmethod
    def of(codes: torch.Tensor, scales: torch.Tensor, first: int, columns: int) -> Int4Weight:
        """The columns from `first` on, where a group begins, of a bundle's packed codes (two in a byte) and scales."""
        groups = slice(first // GROUP, -(-(first + columns) // GROUP))
        both = torch.stack([codes & 15, codes >> 4], dim=-1).view(len(codes), -1, GROUP)[:, groups]
        kept = scales[:, groups].float()
        none = kept == 0  # a compiler may refuse a scale of 0
        codes = torch.where(none[..., None], 0, both.to(torch.int8) + LEAST)
        return Int4Weight(codes.flatten(1), torch.where(none, 1.0, kept), columns)

    @property
    def fits(self) -> bool:
        """Whether the emulator computes correctly: it does not with a part of a group nor with fewer outputs."""
        return self.columns % GROUP == 0 and len(self.codes) % OUTPUTS == 0


def with_int4_products(module: torch.fx.GraphModule, weights: Mapping[str, Int4Weight]) -> torch.fx.GraphModule:
    """Replaces products with constants by convolutions. `weights` is keyed by the constants' names; one that does not fit stays
    dense."""
    writer = _Writer(module, weights)
    return torch.fx.GraphModule(writer.held, writer.rewritten())


class _Writer:
    def __init__(self, module: torch.fx.GraphModule, weights: Mapping[str, Int4Weight]) -> None:
        import torch.ao.quantization.fx._decomposed

        self.module = module
        self.weights = weights
        self.graph = torch.fx.Graph()
        self.held: dict[str, torch.Tensor] = {}
        self.copies: dict[torch.fx.Node, torch.fx.Node] = {}

    def rewritten(self) -> torch.fx.Graph:
        for node in self.module.graph.nodes:
            weight = self.weights.get(str(node.args[1].target)) if str(node.target) == PRODUCT else None
            if weight is not None and weight.fits:
                self.copies[node] = self._product(node, str(node.args[1].target), weight)
            elif node.op == "output":
                self.graph.output(tuple(self.copies[result] for result in node.args[0]))
            elif node.op != "get_attr":
                self._held_by(node)
                self.copies[node] = self.graph.node_copy(node, lambda old: self.copies[old])
        return self.graph

    def _held_by(self, node: torch.fx.Node) -> None:
        """Copies the constants of an operator that stays."""
        for operand in node.all_input_nodes:
            if operand.op == "get_attr" and operand not in self.copies:
                self.copies[operand] = self._constant(str(operand.target), getattr(self.module, str(operand.target)))

    def _product(self, node: torch.fx.Node, name: str, weight: Int4Weight) -> torch.fx.Node:
        aten = torch.ops.aten
        rows = node.args[0].meta["val"].shape[0]
        outputs, groups = weight.scales.shape
        x = self.copies[node.args[0]]
        x = self.graph.call_function(aten.permute.default, (x, [1, 0]))
        x = self.graph.call_function(aten.view.default, (x, [1, groups * GROUP, 1, rows]))
        kernel = self._kernel(name, weight)
        y = self.graph.call_function(aten.conv2d.default, (x, kernel, None, [1, 1], [0, 0], [1, 1], groups))
        y = self.graph.call_function(aten.view.default, (y, [groups, outputs, rows]))
        y = self.graph.call_function(aten.sum.dim_IntList, (y, [0]))
        return self.graph.call_function(aten.permute.default, (y, [1, 0]))

    def _kernel(self, name: str, weight: Int4Weight) -> torch.fx.Node:
        """The dequantized kernel [groups * outputs, GROUP, 1, 1]. The vendor's compiler keeps its codes and scales."""
        outputs, groups = weight.scales.shape
        codes = weight.codes.view(outputs, groups, GROUP).transpose(0, 1).reshape(-1, GROUP, 1, 1)
        operands = [
            self._constant(f"{name}_codes", codes.contiguous()),
            self._constant(f"{name}_scales", weight.scales.t().reshape(-1)),
            self._constant(f"{name}_zeros", torch.zeros(outputs * groups, dtype=torch.int64)),
        ]
        dequantize = torch.ops.quantized_decomposed.dequantize_per_channel.default
        return self.graph.call_function(dequantize, (*operands, 0, LEAST, MOST, torch.int8))

    def _constant(self, name: str, value: torch.Tensor) -> torch.fx.Node:
        """A constant as a parameter: unpickling traces a module again and would evaluate what depends on other tensors alone."""
        self.held[name] = torch.nn.Parameter(value, requires_grad=False)
        return self.graph.get_attr(name)
