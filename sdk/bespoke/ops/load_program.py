# SPDX-License-Identifier: Apache-2.0
"""Loader of a bundle's graphs that runs no code from the bundle.

`torch.export.load` can run code from a doctored file, and not every aten operator is harmless: `aten::save` writes a pickle
to any path, `aten::from_file` maps any file, and an in-place operator would write into weights that are mapped read-only.
So each operator's schema must follow these rules before a graph is built from it:

- it is functional: it writes to none of its operands;
- it takes tensors, numbers, dtypes and a few known words (`tanh`, `floor`, ...), and returns tensors;
- it draws no random numbers: noise comes from the plan's counter alone;
- it is public: the only private operators allowed are those that tracing produces.

The result is a `torch.fx.GraphModule` built straight from the nodes: no fake tensors, no guards, no symbolic shapes.
"""

from __future__ import annotations

import operator
import re
from functools import cache
from typing import Any

import torch

import bespoke.ops  # noqa: F401  (registers torch.ops.bespoke)
from bespoke.errors import BespokeError, BundleError
from bespoke.format.program_json import Code, Operand, ParsedProgram, ProgramNode, ProgramValue, parse_program
from bespoke.ops.dtypes import PROGRAM_DTYPES
from bespoke.ops.program_workspace import workspace_bytes

__all__ = ["build_module", "load_program"]

# Numbers of torch.export's serialisation, as those of PROGRAM_DTYPES.
_LAYOUTS = {7: torch.strided}
_MEMORY_FORMATS = {1: torch.contiguous_format, 4: torch.preserve_format}

_WORDS = frozenset({"none", "tanh", "floor", "trunc", "constant", "sum", "mean", "prod", "amax", "amin"})
_EQUATION = re.compile(r"[A-Za-z, ]+(->[A-Za-z ]*)?")
_PRIVATE = frozenset(
    {
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
        "_log_softmax",
        "_log_softmax_backward_data",
        "_safe_softmax",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_softmax",
        "_softmax_backward_data",
        "_to_copy",
        "_unsafe_view",
    }
)
# Schema type of an argument -> members of a program's argument union that it accepts.
_FIELDS: dict[str, frozenset[str]] = {
    "Tensor": frozenset({"as_tensor", "as_float", "as_int", "as_bool"}),  # x + 2.5 is aten::add.Tensor
    "Optional[Tensor]": frozenset({"as_tensor", "as_optional_tensor", "as_none"}),
    "List[Tensor]": frozenset({"as_tensors"}),
    "List[Optional[Tensor]]": frozenset({"as_tensors", "as_optional_tensors"}),
    # Enumerations are ints in a schema.
    "int": frozenset({"as_int", "as_scalar_type", "as_layout", "as_memory_format"}),
    "bool": frozenset({"as_bool"}),
    "float": frozenset({"as_float", "as_int"}),
    "number": frozenset({"as_float", "as_int", "as_bool"}),
    "str": frozenset({"as_string"}),
    "Device": frozenset({"as_device"}),
    "List[int]": frozenset({"as_ints"}),
    "List[bool]": frozenset({"as_bools"}),
    "List[float]": frozenset({"as_floats", "as_ints"}),
    "List[number]": frozenset({"as_floats", "as_ints"}),
}
_RETURNS = frozenset({"Tensor", "List[Tensor]"})


def load_program(
    data: bytes, subject: str, *, device: str = "cpu", error: type[BespokeError] = BundleError
) -> torch.fx.GraphModule:
    """The graph in the bytes of a model.json. Call it with the flat tensors of the graph; it returns a flat tuple.

    `meta["workspace_bytes"]` is the memory of a call in addition to its operands. `meta["operands"]` and `meta["results"]` are
    the (shape, dtype) of the program's tensors. Constructors inside the graph (`full`, `arange`) are bound to `device`.

    Raises `error` about `subject` for anything but a straight line of allowed operators. Nothing runs before this check.
    """
    return build_module(parse_program(data, subject, error), subject, device=device, error=error)


def build_module(
    program: ParsedProgram, subject: str, *, device: str = "cpu", error: type[BespokeError] = BundleError
) -> torch.fx.GraphModule:
    """`load_program` for a program that is parsed already."""
    for name, (_, number) in program.tensors.items():
        if number not in PROGRAM_DTYPES:
            raise error(
                f"{subject}: value {name}",
                got=f"dtype number {number}",
                expected="a dtype of torch",
                next_step="Build the bundle again from its source",
            )

    graph = torch.fx.Graph()
    values: dict[str, torch.fx.Node] = {}
    used = {value.name for node in program.nodes for operand in node.operands for value in _values(operand.value)}
    used.update(program.outputs)
    for name in program.inputs:
        values[name] = graph.placeholder(name)
    for node in program.nodes:
        target, problem = _operator(node.namespace, node.operator, node.overload)
        if problem:
            raise _refused(error, subject, node, problem)
        args, kwargs = _arguments(node, target, values, torch.device(device), subject, error)
        result = graph.call_function(target, args, kwargs)
        returns = [str(entry.type) for entry in target._schema.returns]
        if node.listed != (returns == ["List[Tensor]"]) or (not node.listed and len(returns) != len(node.outputs)):
            raise _refused(error, subject, node, f"{len(node.outputs)} results, where it gives {returns}")
        if returns == ["Tensor"]:
            values[node.outputs[0]] = result
            continue
        for index, name in enumerate(node.outputs):
            if name in used:
                values[name] = graph.call_function(operator.getitem, (result, index))

    graph.output(tuple(values[name] for name in program.outputs))
    module = torch.fx.GraphModule(torch.nn.Module(), graph, "Program")
    try:
        module.meta["workspace_bytes"] = workspace_bytes(program)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        # A view without a tensor, or one of our operators without its weights.
        raise error(
            subject,
            got="operators without the tensors that they take",
            expected="a program of torch.export",
            next_step="Build the bundle again from its source",
        ) from None

    for side, names in (("operands", program.inputs), ("results", program.outputs)):
        declared = [program.tensors[name] for name in names]
        module.meta[side] = [(tuple(shape), PROGRAM_DTYPES[number]) for shape, number in declared]
    return module


@cache
def _operator(namespace: str, name: str, overload: str) -> tuple[Any, str]:
    """The operator, or why a bundle may not use it."""
    packet = getattr(getattr(torch.ops, namespace), name, None) if _registered(namespace, name) else None
    if packet is None or overload not in packet.overloads():
        return None, "an operator that this version of torch does not have"

    target = getattr(packet, overload)
    schema = target._schema
    if schema.is_mutable:
        return None, "an operator that writes to its operands"
    if name.startswith("_") and name not in _PRIVATE:
        return None, "a private operator"

    draws = torch.Tag.nondeterministic_seeded in target.tags
    if draws and not any(argument.name == "dropout_p" for argument in schema.arguments):
        return None, "an operator that draws random numbers"

    foreign = [str(a.type) for a in schema.arguments if _base(str(a.type)) not in _FIELDS]
    foreign += [str(r.type) for r in schema.returns if str(r.type) not in _RETURNS]
    if foreign or not schema.returns:
        return None, f"an operator over {foreign[0] if foreign else 'no result'}"
    if len(schema.returns) > 1 and any(str(r.type) != "Tensor" for r in schema.returns):
        return None, "an operator that gives lists among other results"
    return target, ""


def _registered(namespace: str, name: str) -> bool:
    """Whether torch has this operator. A look at the attribute alone is not enough: `torch.ops` has attributes of its own."""
    return bool(torch._C._jit_get_schemas_for_operator(f"{namespace}::{name}"))


def _base(kind: str) -> str:
    """The schema type without `Optional`: `Optional[int]` accepts what `int` accepts, and None."""
    optional = kind.startswith("Optional[") and kind != "Optional[Tensor]"
    return kind.removeprefix("Optional[")[:-1] if optional else kind


def _arguments(
    node: ProgramNode,
    target: Any,
    values: dict[str, torch.fx.Node],
    device: torch.device,
    subject: str,
    error: type[BespokeError],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    schema = list(target._schema.arguments)
    places = {argument.name: place for place, argument in enumerate(schema)}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}

    for operand in node.operands:
        place = places.pop(operand.name, None)
        if place is None:
            raise _refused(error, subject, node, f"an argument '{operand.name}' too many")
        kind = str(schema[place].type)
        if operand.field not in _FIELDS[_base(kind)] and not (
            operand.field == "as_none" and kind.startswith("Optional")
        ):
            raise _refused(error, subject, node, f"{operand.field} for the argument '{operand.name}' of type {kind}")
        value = _argument(operand, values, device, node, subject, error)
        if operand.name == "dropout_p" and value != 0:  # attention draws random numbers for nothing else
            raise _refused(error, subject, node, f"dropout of {value}")
        if not operand.positional:
            kwargs[operand.name] = value
        elif place == len(args) and not kwargs and not schema[place].kwarg_only:
            args.append(value)
        else:
            raise _refused(error, subject, node, f"the argument '{operand.name}' out of place")

    missing = [name for name, place in places.items() if not schema[place].has_default_value()]
    if missing:
        raise _refused(error, subject, node, f"no argument '{missing[0]}'")
    return tuple(args), kwargs


def _argument(
    operand: Operand,
    values: dict[str, torch.fx.Node],
    device: torch.device,
    node: ProgramNode,
    subject: str,
    error: type[BespokeError],
) -> Any:
    value = operand.value
    if isinstance(value, ProgramValue):
        return values[value.name]
    if isinstance(value, list):
        return [values[item.name] if isinstance(item, ProgramValue) else item for item in value]
    if isinstance(value, Code):
        if value.kind == "device":
            return device
        table: dict[int, Any] = {"dtype": PROGRAM_DTYPES, "layout": _LAYOUTS, "memory_format": _MEMORY_FORMATS}[
            value.kind
        ]
        if value.number not in table:
            raise _refused(error, subject, node, f"{value.kind} number {value.number}")
        return table[value.number]
    einsum = node.operator == "einsum" and operand.name == "equation"
    if isinstance(value, str) and value not in _WORDS and not (einsum and _EQUATION.fullmatch(value)):
        raise _refused(error, subject, node, f"the word {value!r}")
    return value


def _values(value: Any) -> list[ProgramValue]:
    listed = value if isinstance(value, list) else [value]
    return [item for item in listed if isinstance(item, ProgramValue)]


def _refused(error: type[BespokeError], subject: str, node: ProgramNode, got: str) -> BespokeError:
    return error(
        f"{subject}: operator {node.target}",
        got=got,
        expected="functional, deterministic operators of aten and bespoke over tensors and numbers",
        next_step="Build the bundle again from its source, without this operator",
    )
