# SPDX-License-Identifier: Apache-2.0
"""Target `listing`: a graph as text that people can read, and an interpreter that runs it.

    graph head_end: m float32 [14], ...
    %5 = aten.log.default(%1)
    %6 = aten.sum.dim_IntList(%5, [1], dtype=float32)
    return %6

A line is one operator; its arguments are earlier lines, numbers, lists and names of element types. Reading evaluates nothing: only
operators of the table below are ever looked up.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bespoke.contracts import TORCH_COSTS, Artifact, Graph, Settings, Target, Unsupported, hookimpl

ATEN = """
_softmax.default _softmax_backward_data.default _to_copy.default _unsafe_view.default abs.default add.Scalar add.Tensor
arange.default bitwise_and.Tensor bmm.default cat.default clamp.default clone.default div.Scalar div.Tensor eq.Tensor exp.default
expand.default expm1.default gather.default ge.Scalar gt.Tensor le.Tensor log.default lt.Scalar max.dim maximum.default mean.default
mean.dim minimum.default mm.default mul.Scalar mul.Tensor neg.default permute.default pow.Tensor_Scalar reciprocal.default
rsqrt.default rsub.Scalar scalar_tensor.default select.int sigmoid.default sigmoid_backward.default sign.default slice.Tensor
slice_backward.default split.Tensor sqrt.default squeeze.dim stack.default sub.Tensor sum.default sum.dim_IntList t.default
tanh.default tanh_backward.default transpose.int unsqueeze.default view.default where.self zeros.default zeros_like.default
"""
OURS = (
    "embedding_int4.default",
    "head_chunk_gradient_int4.default",
    "head_chunk_int4.default",
    "linear_int4.default",
    "linear_int4_transposed.default",
)
OPERATORS = frozenset([f"aten.{name}" for name in ATEN.split()] + [f"bespoke.{name}" for name in OURS])
ITEM = "item"  # one of several results
DTYPES = {name: getattr(torch, name) for name in ("float32", "float16", "uint8", "int64", "bool")}
LAYOUT = frozenset(
    {"device", "layout", "memory_format", "pin_memory"}
)  # where and how a result lies: the reader's business, so
RUN_AS = {"view": "reshape", "_unsafe_view": "reshape"}  # a view of something may need a copy here


class ListingOptions(Settings):
    """There is nothing to set."""


class Listing(Target):
    """Text as an artifact."""

    name = "listing"
    Options = ListingOptions
    costs = TORCH_COSTS  # torch runs it

    def lower(self, graph: Graph, folder: Path, options: ListingOptions) -> Artifact:
        path = folder / f"{graph.name}-{graph.key[:16]}.txt"
        operands = ", ".join(f"{spec.name} {spec.dtype} {list(spec.shape)}" for spec in graph.inputs)
        lines = [f"graph {graph.name}: {operands}"]
        numbers: dict[Any, int] = {}
        for node in graph.module.graph.nodes:
            if node.op == "output":
                lines.append("return " + ", ".join(f"%{numbers[result]}" for result in node.args[0]))
                break
            number = numbers[node] = len(numbers)
            if node.op == "call_function":
                operator = ITEM if "getitem" in str(node.target) else str(node.target)
                if operator != ITEM and operator not in OPERATORS:
                    raise refusal(graph, operator, "an operator that is not in its table")
                words = [written(graph, operator, argument, numbers) for argument in node.args]
                named = {name: value for name, value in node.kwargs.items() if name not in LAYOUT}
                words += [f"{name}={written(graph, operator, value, numbers)}" for name, value in named.items()]
                lines.append(f"%{number} = {operator}({', '.join(words)})")
        path.write_bytes(("\n".join(lines) + "\n").encode())
        return Artifact(path, graph.workspace_bytes)

    def open(self, path: Path, options: ListingOptions) -> Callable[..., tuple[torch.Tensor, ...]]:
        _, *body, last = path.read_text(encoding="utf-8").splitlines()
        steps = [parsed(line) for line in body]
        results = [int(word.strip().removeprefix("%")) for word in last.removeprefix("return").split(",")]

        def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values: dict[int, Any] = dict(enumerate(operands))
            for number, function, arguments, named in steps:
                words = [filled(argument, values) for argument in arguments]
                values[number] = function(*words, **{name: filled(value, values) for name, value in named.items()})
            return tuple(values[number] for number in results)

        return run


def refusal(graph: Graph, operator: str, got: str) -> Unsupported:
    return Unsupported(
        f"Target 'listing', graph '{graph.name}', operator {operator}",
        got=got,
        expected=f"one of {len(OPERATORS)} operators over tensors, numbers and element types",
        next_step="Add the operator to bespoke_example.listing, or build for another target",
    )


def written(graph: Graph, operator: str, value: Any, numbers: dict[Any, int]) -> str:
    """An argument as text."""
    if isinstance(value, torch.fx.Node):
        return f"%{numbers[value]}"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, list | tuple):
        return f"[{', '.join(written(graph, operator, item, numbers) for item in value)}]"
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"  # Python's own name for it would read as a name
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise refusal(graph, operator, f"the argument {value!r}")


def item(values: Any, position: int) -> Any:
    return values[position]


def parsed(line: str) -> tuple[int, Callable[..., Any], list[ast.expr], dict[str, ast.expr]]:
    """Number, operator and arguments of a line; `%5` is read as the name v5."""
    left, _, right = line.partition(" = ")
    call = ast.parse(right.replace("%", "v"), mode="eval").body
    assert isinstance(call, ast.Call)
    name = ast.unparse(call.func)
    if name == ITEM:
        function: Callable[..., Any] = item
    elif name in OPERATORS:
        namespace, operator, overload = name.split(".")
        function = getattr(getattr(getattr(torch.ops, namespace), RUN_AS.get(operator, operator)), overload)
    else:
        raise ValueError(f"no operator {name!r} in the table")
    return int(left.removeprefix("%")), function, call.args, {word.arg or "": word.value for word in call.keywords}


def filled(expression: ast.expr, values: dict[int, Any]) -> Any:
    """The value of an argument."""
    if isinstance(expression, ast.Name):
        return DTYPES[expression.id] if expression.id in DTYPES else values[int(expression.id.removeprefix("v"))]
    if isinstance(expression, ast.List):
        return [filled(element, values) for element in expression.elts]
    return ast.literal_eval(expression)


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(Listing())
