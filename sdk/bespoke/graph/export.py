# SPDX-License-Identifier: Apache-2.0
"""A traced graph as the bytes that a bundle keeps: torch.export's model.json and nothing else.

The other files that torch would write (state, constants, sample inputs) are pickles. A graph of bespoke needs none of them; one
that does is refused by name. What torch adds to model.json besides the computation (stack traces, source paths, names of
modules and variables, build tags of torch) is dropped or replaced, so that the same computation gives the same bytes in
any folder and under any name. `torch._export.serde.serialize.deserialize` still reads the file; a bundle's own reader
is `bespoke.ops.load_program`.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch._export.serde.serialize import SCHEMA_VERSION, GraphModuleSerializer, _to_json_bytes

from bespoke.errors import GraphError
from bespoke.format.json_strict import dumps_canonical
from bespoke.format.program_document import SCHEMA_MAJOR, program_document
from bespoke.ops.load_program import load_program

__all__ = ["program_bytes"]

_NO_RESULT = ("aten._assert_tensor_metadata.default",)  # tracing leaves these; shapes are fixed here


def program_bytes(program: torch.export.ExportedProgram | torch.fx.GraphModule, name: str = "graph") -> bytes:
    """The model.json of `program`, deterministic and stripped; what comes out has been read back once.

    A module that `make_fx` traced gives the same bytes as its export, ten times faster. Raises GraphError about `name`
    for parameters, buffers, constants, mutated inputs, symbolic shapes, results that are no tensors, and operators that
    `bespoke.ops.load_program` refuses.
    """
    if SCHEMA_VERSION[0] != SCHEMA_MAJOR:
        raise GraphError(
            f"Graph '{name}'",
            got=f"export schema {SCHEMA_VERSION[0]}.{SCHEMA_VERSION[1]} of torch {torch.__version__}",
            expected=f"major version {SCHEMA_MAJOR}",
            next_step="Build with torch 2.13",
        )
    if isinstance(program, torch.export.ExportedProgram):
        _refuse_extras(program, name)
    module = program.graph_module if isinstance(program, torch.export.ExportedProgram) else program
    _refuse_nodes(module.graph, name)
    try:
        graph = json.loads(_to_json_bytes(GraphModuleSerializer(None, []).serialize_graph(module)))
    except Exception as problem:  # torch raises its own SerializeError, AssertionError, KeyError, ...
        raise GraphError(
            f"Graph '{name}'",
            got=f"{type(problem).__name__}: {str(problem)[:300]}",
            expected="a graph that torch.export can write",
            next_step="Use functional aten operators with fixed shapes",
        ) from problem
    data = dumps_canonical(_strip(graph))
    load_program(data, f"Graph '{name}'", error=GraphError)
    return data


def _refuse_extras(program: torch.export.ExportedProgram, name: str) -> None:
    """Refuses an export that holds more than its graph, or does more than compute results."""

    signature = program.graph_signature
    for spec in signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            kind = spec.kind.name.lower().replace("_", " ")
            raise _refused(
                name, f"the {kind} '{spec.target}'", "a graph whose every tensor is an operand", "Pass it as an operand"
            )
    for spec in signature.output_specs:
        if spec.kind.name != "USER_OUTPUT":
            kind = spec.kind.name.lower().replace("_", " ")
            raise _refused(
                name, f"a {kind} of '{spec.target}'", "a function without side effects", "Return the new value"
            )


def _refuse_nodes(graph: torch.fx.Graph, name: str) -> None:
    for node in graph.nodes:
        if node.op == "get_attr":
            raise _refused(name, f"the constant '{node.target}'", "a graph without constants", "Pass it as an operand")
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise _refused(name, f"the symbolic size '{node.name}'", "fixed shapes", "Trace with fixed shapes")
        if node.op in ("placeholder", "output") or isinstance(value, torch.Tensor):
            continue
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise _refused(
                name, f"the operator '{node.target}'", "operators of aten and bespoke", "Write it without control flow"
            )


def _refused(name: str, got: str, expected: str, next_step: str) -> GraphError:
    return GraphError(f"Graph '{name}'", got=got, expected=expected, next_step=next_step)


def _strip(graph: dict[str, Any]) -> dict[str, Any]:
    """The same computation with canonical names, and only what `program_document` writes around it."""
    names: dict[str, str] = {}
    nodes = []
    inputs = [_defined(names, entry) for entry in graph["inputs"]]
    for node in graph["nodes"]:
        if node["target"].removeprefix("torch.ops.") in _NO_RESULT:
            continue
        operands = [{**operand, "arg": _renamed(names, operand["arg"])} for operand in node["inputs"]]
        nodes.append(
            {
                "target": node["target"],
                "inputs": operands,
                "outputs": [_result(names, entry) for entry in node["outputs"]],
                "metadata": {},
                "is_hop_single_tensor_return": None,
                "name": None,
            }
        )
    tensors = {
        names[name]: {**meta, "requires_grad": False} for name, meta in graph["tensor_values"].items() if name in names
    }
    outputs = [names.get(entry.get("as_tensor", {}).get("name", ""), "none") for entry in graph["outputs"]]
    release = torch.__version__.split("+")[0]
    return program_document(inputs, outputs, nodes, tensors, SCHEMA_VERSION[1], release)


def _defined(names: dict[str, str], entry: dict[str, Any]) -> str:
    """The canonical name of a value that appears here for the first time; reading back refuses what is no tensor."""
    name = entry.get("as_tensor", {}).get("name", "")
    return names.setdefault(name, f"v{len(names)}")


def _result(names: dict[str, str], entry: dict[str, Any]) -> dict[str, Any]:
    if "as_tensors" in entry:
        return {"as_tensors": [{"name": _defined(names, {"as_tensor": item})} for item in entry["as_tensors"]]}
    return {"as_tensor": {"name": _defined(names, entry)}} if "as_tensor" in entry else entry


def _renamed(names: dict[str, str], argument: Any) -> Any:
    if isinstance(argument, list):
        return [_renamed(names, item) for item in argument]
    if not isinstance(argument, dict):
        return argument
    if set(argument) == {"name"}:
        return {"name": names.get(argument["name"], argument["name"])}
    return {key: _renamed(names, item) for key, item in argument.items()}
