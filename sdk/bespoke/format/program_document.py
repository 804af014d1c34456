# SPDX-License-Identifier: Apache-2.0
"""The `model.json` document around the nodes of an exported program, as torch.export's own reader wants it."""

from __future__ import annotations

from typing import Any

from bespoke.format.json_strict import dumps_canonical

__all__ = ["SCHEMA_MAJOR", "program_document"]

SCHEMA_MAJOR = 8  # of torch.export's serialisation; it fixes the meaning of the numbers that stand for dtypes

_LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
_EMPTY_DICT: dict[str, Any] = {"type": "builtins.dict", "context": "[]", "children_spec": []}


def program_document(
    inputs: list[str],
    outputs: list[str],
    nodes: list[dict[str, Any]],
    tensor_values: dict[str, Any],
    schema_minor: int,
    torch_version: str,
) -> dict[str, Any]:
    """The whole document. Inputs, outputs, nodes and tensor values determine it, apart from the two versions."""
    refs = [{"as_tensor": {"name": name}} for name in inputs]
    results = [{"as_tensor": {"name": name}} for name in outputs]
    return {
        "graph_module": {
            "graph": {
                "inputs": refs,
                "outputs": results,
                "nodes": nodes,
                "tensor_values": tensor_values,
                "sym_int_values": {},
                "sym_bool_values": {},
                "is_single_tensor_return": False,
                "custom_obj_values": {},
                "sym_float_values": {},
            },
            "signature": {
                "input_specs": [{"user_input": {"arg": ref}} for ref in refs],
                "output_specs": [{"user_output": {"arg": ref}} for ref in results],
            },
            "module_call_graph": [
                {
                    "fqn": "",
                    "signature": {
                        "inputs": [],
                        "outputs": [],
                        "in_spec": _structure(_tuple_of(_tuple_of(*[_LEAF] * len(inputs)), _EMPTY_DICT)),
                        "out_spec": _structure(_tuple_of(*[_LEAF] * len(outputs))),
                        "forward_arg_names": list(inputs),
                    },
                }
            ],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10},
        "range_constraints": {},
        "schema_version": {"major": SCHEMA_MAJOR, "minor": schema_minor},
        "verifiers": ["TRAINING"],
        "torch_version": torch_version,
        "guards_code": [],
    }


def _tuple_of(*children: dict[str, Any]) -> dict[str, Any]:
    return {"type": "builtins.tuple", "context": "null", "children_spec": list(children)}


def _structure(tree: dict[str, Any]) -> str:
    return dumps_canonical([1, tree])[:-1].decode()
