# SPDX-License-Identifier: Apache-2.0
"""Lowers a traced graph to a tape. An ATen operator uses its rule or else a kernel of ExecuTorch. Otherwise it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from bespoke.errors import Unsupported
from bespoke.graph import Graph
from bespoke_plugins.targets.executorch import arithmetic, shapes, truths
from bespoke_plugins.targets.executorch.attention import attend, attention_sizes
from bespoke_plugins.targets.executorch.kernels import out_variant
from bespoke_plugins.targets.executorch.tape import Kind, Tape, Value

RULES = {**shapes.RULES, **arithmetic.RULES, **truths.RULES}


class Lowering:
    """Lowers one graph. `node` is the node being lowered."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tape = Tape()
        self.node: torch.fx.Node
        self.values: dict[torch.fx.Node, Any] = {}

    @property
    def operands(self) -> list[torch.fx.Node]:
        """The operands of the program, in order."""
        return [node for node in self.graph.module.graph.nodes if node.op == "placeholder"]

    def run(self) -> list[Value]:
        """Values of the results in order, with the shapes and element types of the graph's signature."""
        nodes = list(self.graph.module.graph.nodes)
        for position, node in enumerate(self.operands):
            meta = node.meta["val"]
            self.values[node] = self.tape.operand(position, meta.shape, meta.dtype)
        attention = self.attention()
        if attention is not None:
            return attention
        self.calls([node for node in nodes if node.op == "call_function"])
        output = self.graph.module.graph.output_node()
        return [self._result(node) for node in output.args[0]]

    def attention(self) -> list[Value] | None:
        """The result of our own operator if the graph is attention, or None."""
        sizes = attention_sizes(self.graph)
        return None if sizes is None else attend(self.tape, [self.values[node] for node in self.operands], sizes)

    def calls(self, nodes: Iterable[torch.fx.Node]) -> None:
        for self.node in nodes:
            self.values[self.node] = self._call()

    def refuse(self, reason: str) -> Unsupported:
        return Unsupported(
            f"Graph '{self.graph.name}', operator {self.node.target}",
            got=reason,
            expected="an operator that XNNPACK or a kernel of ExecuTorch takes",
            next_step="Write the function with other operators, or choose another target",
        )

    def _call(self) -> Any:
        node, meta = self.node, self.node.meta.get("val")
        if "getitem" in str(node.target):
            return self._argument(node.args[0])[node.args[1]]
        if isinstance(meta, torch.Tensor) and meta.numel() == 0:
            return self.tape.full(meta.shape, 0.0)
        arguments = [self._argument(a) for a in node.args]
        rule = RULES.get(str(node.target))
        result = (
            None if rule is None else rule(self, *arguments, **{k: self._argument(v) for k, v in node.kwargs.items()})
        )
        return self._kernel() if result is None else result

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        return [self._argument(item) for item in argument] if isinstance(argument, list | tuple) else argument

    def _kernel(self) -> Any:
        """Calls the operator's kernel in ExecuTorch, with tensors in their stored element types."""
        target, meta = self.node.target, self.node.meta["val"]
        name, schema = out_variant(target)
        if name is None:
            raise self.refuse("an operator without a kernel")
        arguments: list[Any] = []
        for i, wanted in enumerate(schema.arguments):
            if wanted.is_out:
                continue
            if wanted.name in self.node.kwargs:
                given = self.node.kwargs[wanted.name]
            elif i < len(self.node.args) and not wanted.kwarg_only:
                given = self.node.args[i]
            else:
                given = wanted.default_value
            arguments.append(self._stored(given))
        metas = meta if isinstance(meta, list | tuple) else [meta]
        results = self.tape.kernel(name, arguments, [(m.shape, m.dtype) for m in metas])
        return results if isinstance(meta, list | tuple) else results[0]

    def _stored(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.tape.stored(self.values[argument], argument.meta["val"].dtype)
        if isinstance(argument, list | tuple):
            return [self._stored(item) for item in argument]
        return argument

    def _result(self, node: torch.fx.Node) -> Value:
        meta = node.meta["val"]
        return self.tape.view(self.tape.stored(self.values[node], meta.dtype), meta.shape)

    # ---- what rules share --------------------------------------------------------------------------------------------------

    def value(self, x: Any) -> Value:
        """Returns a tensor unchanged and a number as a constant."""
        if isinstance(x, Value):
            return x
        return self.tape.full((), float(x), "integer" if isinstance(x, int) else "float")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.node.meta["val"].shape)

    @property
    def kind(self) -> Kind:
        dtype = self.node.meta["val"].dtype
        return "truth" if dtype is torch.bool else "float" if dtype.is_floating_point else "integer"
