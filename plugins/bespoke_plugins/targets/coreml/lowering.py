# SPDX-License-Identifier: Apache-2.0
"""Lowers a traced graph to a MIL program: one record an operator, in coremltools' builder, which checks shapes and types."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program, Var, types

from bespoke.errors import Unsupported
from bespoke.graph import Graph
from bespoke_plugins.targets.coreml import int4, operators
from bespoke_plugins.targets.coreml.features import Feature, Weights, features_of
from bespoke_plugins.targets.coreml.operators import cast, dtype_of

__all__ = ["OPSETS", "Lowering"]

OPSETS = {"int32": ct.target.iOS18, "int8": ct.target.iOS26, "baked": ct.target.iOS18}
"""The opset that each form of weights needs: iOS 18 adds constexpr_blockwise_shift_scale and iOS 26 int8 features."""
_IGNORED = frozenset({"device", "layout", "memory_format", "pin_memory"})  # where and how a result lies


class Lowering:
    """Lowers one graph. `half`: nodes that compute in fp16. `baked`: operands that become constants, by name."""

    def __init__(
        self,
        graph: Graph,
        weights: Weights,
        half: frozenset[torch.fx.Node],
        baked: Mapping[str, np.ndarray],
    ) -> None:
        self.graph = graph
        self.opset = OPSETS[weights]
        self.inputs = features_of([spec for spec in graph.inputs if spec.name not in baked], "x", weights)
        self.outputs = features_of(graph.outputs, "y", weights)
        self._half = half
        self._baked = baked
        self._values: dict[torch.fx.Node, Any] = {}
        self._cast: dict[tuple[torch.fx.Node, str], Any] = {}

    def program(self) -> Program:
        """The MIL program. Raises Unsupported for an operator that MIL lacks or cannot apply to these operands."""
        places = {
            feature.name: mb.placeholder(shape=feature.shape, dtype=types.string_to_builtin(feature.dtype))
            for feature in self.inputs
        }
        program = Program()
        with Function(places, opset_version=self.opset) as function:
            self._operands(function)
            for node in self.graph.module.graph.nodes:
                if node.op == "call_function":
                    self._values[node] = self._called(node)
            results = self.graph.module.graph.output_node().args[0]
            function.set_outputs([self._result(*each) for each in zip(results, self.outputs, strict=True)])
        program.add_function("main", function)
        return program

    def _operands(self, function: Function) -> None:
        features = iter(self.inputs)
        holders = [node for node in self.graph.module.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(holders, self.graph.inputs, strict=True):
            if spec.name in self._baked:
                self._values[node] = self._baked[spec.name]
                continue
            value = function.inputs[next(features).name]
            self._values[node] = value if spec.shape else mb.squeeze(x=value, axes=[0])

    def _result(self, node: torch.fx.Node, feature: Feature) -> Var:
        value = cast(self._values[node], feature.dtype)
        if not value.shape:
            return mb.expand_dims(x=value, axes=[0], name=feature.name)
        return mb.identity(x=value, name=feature.name)

    def _called(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            return self._values[node.args[0]][node.args[1]]
        name = str(node.target)
        dtype = "fp16" if node in self._half else "fp32"
        try:
            if name in int4.TABLE:
                first, *others = node.args
                return int4.TABLE[name](dtype, self._in(dtype, first), *[self._in(None, other) for other in others])
            if name in operators.TABLE:
                named = {key: value for key, value in node.kwargs.items() if key not in _IGNORED}
                return operators.TABLE[name](*[self._in(dtype, a) for a in node.args], **named)
        except (ValueError, TypeError, KeyError, NotImplementedError) as problem:  # the builder's own errors, too
            raise self._refusal(node, f"{type(problem).__name__}: {problem}") from problem
        raise self._refusal(node, "an operator without a record")

    def _in(self, dtype: str | None, argument: Any) -> Any:
        """An argument with its nodes replaced by values; floats in `dtype`."""
        if isinstance(argument, list | tuple):
            return [self._in(dtype, item) for item in argument]
        if not isinstance(argument, torch.fx.Node):
            return argument
        value = self._values[argument]
        if dtype is None or not isinstance(value, Var) or dtype_of(value) not in ("fp32", "fp16"):
            return value
        if (argument, dtype) not in self._cast:
            self._cast[argument, dtype] = cast(value, dtype)
        return self._cast[argument, dtype]

    def _refusal(self, node: torch.fx.Node, got: str) -> Unsupported:
        return Unsupported(
            f"Graph '{self.graph.name}', operator {node.target}",
            got=got[:300],
            expected=f"one of {len(operators.TABLE) + len(int4.TABLE)} operators, with operands that MIL takes",
            next_step="Write the function with other operators, or choose another target",
        )
