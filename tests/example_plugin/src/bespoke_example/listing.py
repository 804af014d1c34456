# SPDX-License-Identifier: Apache-2.0
"""Target `listing`: a graph as text that people can read, and an interpreter that runs it.

    graph head_end: m float32 [14], ...
    %5 = aten.log.default(%1)
    %6 = aten.sum.dim_IntList(%5, [1], dtype=float32)
    return %6

A line is one operator. Its arguments are earlier lines, numbers, lists and names of element types. Reading a listing evaluates
nothing: the interpreter looks up only the operators of the table below.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bespoke.contracts import TORCH_COSTS, Artifact, Baked, Graph, Settings, Target, Unsupported, hookimpl

ATEN = """
_softmax.default _softmax_backward_data.default _to_copy.default _unsafe_view.default abs.default add.Scalar add.Tensor
arange.default bitwise_and.Tensor bmm.default cat.default clamp.default clone.default div.Scalar div.Tensor eq.Tensor exp.default
expand.default expm1.default gather.default ge.Scalar gt.Tensor le.Tensor log.default lt.Scalar max.dim maximum.default mean.default
mean.dim minimum.default mm.default mul.Scalar mul.Tensor neg.default permute.default pow.Tensor_Scalar reciprocal.default
rsqrt.default rsub.Scalar scalar_tensor.default select.int sigmoid.default sigmoid_backward.default sign.default slice.Tensor
slice_backward.default split.Tensor sqrt.default squeeze.dim stack.default sub.Tensor sum.default sum.dim_IntList t.default
tanh.default tanh_backward.default transpose.int unsqueeze.default view.default where.self zeros.default zeros_like.default
"""
INT4 = "embedding_int4 head_chunk_gradient_int4 head_chunk_int4 linear_int4 linear_int4_transposed"
OPERATORS = frozenset([f"aten.{name}" for name in ATEN.split()] + [f"bespoke.{name}.default" for name in INT4.split()])
ITEM = "item"  # one of several results of an operator
DTYPES = {name: getattr(torch, name) for name in ("float32", "float16", "uint8", "int64", "bool")}
WHERE_IT_LIES = frozenset({"device", "layout", "memory_format", "pin_memory"})  # the reader decides these
RUN_AS = {"view": "reshape", "_unsafe_view": "reshape"}  # a view may need a copy here


class Listing(Target):
    """Writes graphs as text. torch runs the text, so the costs are those of torch."""

    name = "listing"
    costs = TORCH_COSTS

    def lower(self, graph: Graph, folder: Path, options: Settings, baked: Baked | None = None) -> Artifact:
        operands = ", ".join(f"{spec.name} {spec.dtype} {list(spec.shape)}" for spec in graph.inputs)
        lines = [f"graph {graph.name}: {operands}"]
        numbers: dict[torch.fx.Node, int] = {}
        for node in graph.module.graph.nodes:
            if node.op == "output":
                lines.append("return " + ", ".join(f"%{numbers[result]}" for result in node.args[0]))
                continue
            numbers[node] = len(numbers)
            if node.op == "call_function":
                lines.append(f"%{numbers[node]} = {written_call(graph, node, numbers)}")
        path = folder / f"{graph.name}-{graph.key[:16]}.txt"
        path.write_bytes(("\n".join(lines) + "\n").encode())
        return Artifact(path, graph.workspace_bytes)

    def open(self, path: Path, options: Settings) -> Callable[..., tuple[torch.Tensor, ...]]:
        _, *calls, last = path.read_text(encoding="utf-8").splitlines()
        steps = [parsed(line) for line in calls]
        results = [int(word.strip().removeprefix("%")) for word in last.removeprefix("return").split(",")]

        def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values: dict[int, Any] = dict(enumerate(operands))
            for step in steps:
                arguments = [argument_of(argument, values) for argument in step.arguments]
                named = {name: argument_of(argument, values) for name, argument in step.named.items()}
                values[step.number] = step.function(*arguments, **named)
            return tuple(values[number] for number in results)

        return run


# ---- writing ---------------------------------------------------------------------------------------------------------------


def written_call(graph: Graph, node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int]) -> str:
    """A call of an operator as text, without its number."""
    operator = ITEM if "getitem" in str(node.target) else str(node.target)
    if operator != ITEM and operator not in OPERATORS:
        raise unsupported(graph, operator, "an operator that is not in its table")
    words = [written(graph, operator, argument, numbers) for argument in node.args]
    named = {name: value for name, value in node.kwargs.items() if name not in WHERE_IT_LIES}
    words += [f"{name}={written(graph, operator, value, numbers)}" for name, value in named.items()]
    return f"{operator}({', '.join(words)})"


def written(graph: Graph, operator: str, value: Any, numbers: Mapping[torch.fx.Node, int]) -> str:
    """An argument as text."""
    if isinstance(value, torch.fx.Node):
        return f"%{numbers[value]}"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, list | tuple):
        return f"[{', '.join(written(graph, operator, element, numbers) for element in value)}]"
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"  # Python's own `inf` would read as a name
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise unsupported(graph, operator, f"the argument {value!r}")


def unsupported(graph: Graph, operator: str, got: str) -> Unsupported:
    return Unsupported(
        f"Target 'listing', graph '{graph.name}', operator {operator}",
        got=got,
        expected=f"one of {len(OPERATORS)} operators over tensors, numbers and element types",
        next_step="Add the operator to bespoke_example.listing, or build for another target",
    )


# ---- running ---------------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One line of a listing: its number, its operator and the syntax of its arguments."""

    number: int
    function: Callable[..., Any]
    arguments: list[ast.expr]
    named: dict[str, ast.expr]


def parsed(line: str) -> Step:
    """Parses one line. A value `%5` parses as the name v5."""
    number, _, text = line.partition(" = ")
    call = ast.parse(text.replace("%", "v"), mode="eval").body
    assert isinstance(call, ast.Call)
    named = {keyword.arg or "": keyword.value for keyword in call.keywords}
    return Step(int(number.removeprefix("%")), function_of(ast.unparse(call.func)), call.args, named)


def function_of(operator: str) -> Callable[..., Any]:
    """The function of an operator. Raises ValueError for an operator outside the table."""
    if operator == ITEM:
        return lambda values, position: values[position]
    if operator not in OPERATORS:
        raise ValueError(f"no operator {operator!r} in the table")
    namespace, name, overload = operator.split(".")
    function: Callable[..., Any] = getattr(getattr(getattr(torch.ops, namespace), RUN_AS.get(name, name)), overload)
    return function


def argument_of(syntax: ast.expr, values: Mapping[int, Any]) -> Any:
    """The value of an argument: an earlier value, an element type, a list or a literal."""
    if isinstance(syntax, ast.Name):
        return DTYPES[syntax.id] if syntax.id in DTYPES else values[int(syntax.id.removeprefix("v"))]
    if isinstance(syntax, ast.List):
        return [argument_of(element, values) for element in syntax.elts]
    return ast.literal_eval(syntax)


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(Listing())
