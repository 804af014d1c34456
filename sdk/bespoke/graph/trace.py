# SPDX-License-Identifier: Apache-2.0
"""From a plain torch function to a graph with a typed signature and the cost of a call.

The key of a graph is a hash of what was traced. Its name does not enter: the same computation under two names is one graph, two
computations under one name are two. Everything that differs from block to block is an input, so a graph holds no constants.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree

import bespoke.ops  # noqa: F401  (registers the int4 operators)
from bespoke.errors import GraphError
from bespoke.graph.call_cost import flops, traffic_bytes, workspace_bytes
from bespoke.graph.export import program_bytes
from bespoke.graph.tree import Form, flatten, paths, unflatten
from bespoke.ops.dtypes import TORCH_DTYPES
from bespoke.plan.instructions import DType

DTYPE_NAMES: dict[torch.dtype, DType] = {dtype: name for name, dtype in TORCH_DTYPES.items()}  # type: ignore[misc]


@dataclass(frozen=True)
class TensorSpec:
    """One operand or result of a graph."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, eq=False)
class Graph:
    """A traced function. `module` takes the operands in the order of `inputs` and returns a flat tuple.

    workspace_bytes: memory of a call with torch, without its operands and with its results
    in_place_bytes:  the same with a core that writes results into given buffers
    traffic_bytes:   bytes that its operators read and write
    """

    key: str
    name: str
    module: torch.fx.GraphModule = field(repr=False)
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    workspace_bytes: int
    in_place_bytes: int
    traffic_bytes: int
    flops: int

    def export(self) -> ExportedProgram:
        """The graph as an ExportedProgram, which is what targets compile.

        Made from what was traced, which is already flat, functional and ATen: `torch.export.export` would trace it again.
        """
        names = [node.name for node in self.module.graph.nodes if node.op == "placeholder"]
        results = [node.name for node in self.module.graph.output_node().args[0]]
        signature = ExportGraphSignature(
            input_specs=[InputSpec(InputKind.USER_INPUT, TensorArgument(name), None) for name in names],
            output_specs=[OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name), None) for name in results],
        )
        operands = _pytree.tree_structure((tuple(names), {}))
        call = ModuleCallSignature(
            inputs=[TensorArgument(name) for name in names],
            outputs=[TensorArgument(name) for name in results],
            in_spec=operands,
            out_spec=_pytree.tree_structure(tuple(results)),
        )
        return ExportedProgram(
            self.module,
            self.module.graph,
            signature,
            state_dict={},
            range_constraints={},
            module_call_graph=[ModuleCallEntry("", call)],
            constants={},
        )

    @cached_property
    def program(self) -> bytes:
        """The graph as the bytes that a bundle keeps (`graph.export`)."""
        return program_bytes(self.export(), self.name)

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return tuple(torch.zeros(spec.shape, dtype=TORCH_DTYPES[spec.dtype]) for spec in self.inputs)


Traced = dict[Hashable, tuple[Graph, Form]]
MOST_TRACED = 1000  # that are kept: a bundle has some hundred
OF_THIS_PROCESS: Traced = {}  # an estimate and the builds after it trace the same functions, which is half of their time


@dataclass
class Tracer:
    """Traces each function once per combination of shapes, and merges equal graphs. Shared by all plans of a bundle.

    `graphs` are those of this bundle; `traced` may be shared with bundles before it.
    """

    graphs: dict[str, Graph] = field(default_factory=dict)
    traced: Traced = field(default_factory=dict)
    _fake: FakeTensorMode = field(default_factory=FakeTensorMode)  # one for all: making it takes as long as tracing

    def trace(
        self, function: Callable[..., Any], leaves: Sequence[Any], form: Form, static: dict[str, Hashable]
    ) -> tuple[Graph, Form]:
        """The graph of `function(*trees, **static)` and the form of its result; `leaves` and `form` are the flattened trees.

        Leaves have `.shape` and `.dtype` (a name out of `DType`).
        """
        signature = tuple([(leaf.shape, leaf.dtype) for leaf in leaves])
        # 1, 1.0 and True are equal, and give different graphs
        options = tuple([(name, type(value), getattr(value, "trace_key", value)) for name, value in static.items()])
        cache_key = (identity(function), signature, form, options)
        try:
            traced = self.traced.get(cache_key)
        except TypeError as error:
            raise GraphError(
                f"Function '{_name(function)}'",
                got=f"options that cannot be compared: {error}",
                expected="hashable options: numbers, strings, tuples, frozen objects",
                next_step="Give lists as tuples, and tensors as operands",
            ) from None
        if traced is None:
            module, results = _trace(function, leaves, form, static, self._fake)
            graph = _graph(_name(function), module, _operand_names(function, form), signature)
            if len(self.traced) >= MOST_TRACED:
                del self.traced[next(iter(self.traced))]
            traced = self.traced[cache_key] = (graph, results)
        graph, results = traced
        return self.graphs.setdefault(graph.key, graph), results


def identity(function: Callable[..., Any]) -> Hashable:
    """The key that tells functions apart: the function, or the `trace_key` that it or the object of a method names."""
    owner: Any = getattr(function, "__self__", None)
    if hasattr(owner, "trace_key"):
        return getattr(function, "__func__", None), owner.trace_key
    return getattr(function, "trace_key", function)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _operand_names(function: Callable[..., Any], form: Form) -> list[str]:
    """`weights.q_proj.codes` for the leaf at that path of the argument `weights`."""
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = []
    return [
        path
        for position, child in enumerate(form[2])
        for path in paths(child, parameters[position] if position < len(parameters) else f"operand_{position}")
    ]


def _trace(
    function: Callable[..., Any], leaves: Sequence[Any], form: Form, static: dict[str, Hashable], fake: FakeTensorMode
) -> tuple[torch.fx.GraphModule, Form]:
    forms: list[Form] = []

    def flat(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results, result_form = flatten(function(*unflatten(form, iter(operands)), **static))
        forms[:] = [result_form]
        return tuple(results)

    try:
        with fake, torch.no_grad():
            operands = [torch.empty(tuple(leaf.shape), dtype=TORCH_DTYPES[leaf.dtype]) for leaf in leaves]
            module = make_fx(flat, tracing_mode="real")(*operands)
    except Exception as error:
        raise GraphError(
            f"Function '{_name(function)}'",
            got=f"{type(error).__name__}: {str(error)[:500]}",
            expected="a plain torch function of tensors that can be traced",
            next_step="Call it once on real tensors of these shapes to see where it fails",
        ) from error
    _simplify(module)
    for node in module.graph.nodes:
        if node.op == "get_attr":
            raise GraphError(
                f"Function '{_name(function)}'",
                got=f"a tensor constant ('{node.target}') inside the graph",
                expected="everything but shapes to be an input",
                next_step="Pass the tensor as an operand; numbers go through b.constant",
            )
    return module, forms[0]


def _simplify(module: torch.fx.GraphModule) -> None:
    """Drops what tracing leaves behind: detached aliases and code that nothing reads."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _graph(
    name: str,
    module: torch.fx.GraphModule,
    operand_names: Sequence[str],
    signature: Sequence[tuple[tuple[int, ...], DType]],
) -> Graph:
    inputs = tuple(
        TensorSpec(operand, shape, dtype) for operand, (shape, dtype) in zip(operand_names, signature, strict=True)
    )
    results = list(module.graph.output_node().args[0])
    for result in results:
        if not isinstance(result, torch.fx.Node) or result.meta["val"].dtype not in DTYPE_NAMES:
            raise GraphError(
                f"Function '{name}'",
                got=f"the result {result!r}",
                expected=f"tensors of dtype {', '.join(TORCH_DTYPES)}",
                next_step="Convert the result inside the function",
            )
    outputs = tuple(
        TensorSpec(f"result_{position}", tuple(node.meta["val"].shape), DTYPE_NAMES[node.meta["val"].dtype])
        for position, node in enumerate(results)
    )
    return Graph(
        _hash(module),
        name,
        module,
        inputs,
        outputs,
        workspace_bytes(module),
        workspace_bytes(module, in_place=True),
        traffic_bytes(module),
        flops(module),
    )


def _hash(module: torch.fx.GraphModule) -> str:
    """sha256 over operators, arguments and shapes; names of nodes do not enter."""
    number: dict[torch.fx.Node, int] = {}
    lines: list[Any] = []

    def plain(argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return ["node", number[argument]]
        if isinstance(argument, list | tuple):
            return [plain(item) for item in argument]
        if isinstance(argument, dict):
            return {key: plain(item) for key, item in sorted(argument.items())}
        return [type(argument).__name__, str(argument)]

    for node in module.graph.nodes:
        value = node.meta.get("val")
        shape = [list(value.shape), str(value.dtype)] if isinstance(value, torch.Tensor) else None
        lines.append(
            [
                node.op,
                "" if node.op != "call_function" else str(node.target),
                plain(node.args),
                plain(node.kwargs),
                shape,
            ]
        )
        number[node] = len(number)
    return hashlib.sha256(json.dumps(lines, sort_keys=True).encode()).hexdigest()


__all__ = ["DTYPE_NAMES", "TORCH_DTYPES", "Graph", "TensorSpec", "Tracer"]
