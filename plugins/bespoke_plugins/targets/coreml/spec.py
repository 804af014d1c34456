# SPDX-License-Identifier: Apache-2.0
"""Serializes a MIL program into one file without a weight file. Each run writes the same bytes.

coremltools numbers names with counters of the process and leaves the order of protobuf's maps to chance. So this module renames
values in program order, writes the description and sorts the maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coremltools import proto
from coremltools.converters.mil.backend.mil.helper import create_immediate_value
from coremltools.converters.mil.backend.mil.load import MILProtoExporter
from coremltools.converters.mil.mil import Function, Program, Var, types

from bespoke_plugins.targets.coreml.features import Feature

__all__ = ["Compiled", "compiled"]

_ARRAY = proto.FeatureTypes_pb2.ArrayFeatureType
_TYPES = {"fp32": _ARRAY.FLOAT32, "fp16": _ARRAY.FLOAT16, "int32": _ARRAY.INT32, "int8": _ARRAY.INT8}
_BYTES = {"fp32": 4, "fp16": 2, "int32": 4, "int8": 1, "bool": 1}


@dataclass(frozen=True)
class Compiled:
    """A serialized program.

    `workspace_bytes` is the largest total size of values that are alive at once in a call, without operands and constants. Core
    ML's own memory can only be measured on a device.
    """

    data: bytes
    workspace_bytes: int


def compiled(program: Program, opset: Any, inputs: Sequence[Feature], outputs: Sequence[Feature]) -> Compiled:
    """The spec of a program with one function."""
    function = program.functions["main"]
    _name(function, {feature.name for feature in outputs})
    exporter = _WithoutWeightFile(program, "", int(opset))
    spec = proto.Model_pb2.Model(specificationVersion=int(opset))
    for side, features in ((spec.description.input, inputs), (spec.description.output, outputs)):
        for feature in features:
            described = side.add(name=feature.name, shortDescription=feature.description)
            described.type.multiArrayType.CopyFrom(_ARRAY(shape=feature.shape, dataType=_TYPES[feature.dtype]))
    spec.mlProgram.CopyFrom(exporter.export())
    return Compiled(spec.SerializeToString(deterministic=True), _workspace(function))


class _WithoutWeightFile(MILProtoExporter):
    """Writes every constant where it is used."""

    def get_milproto_value(self, var: Var) -> Any:
        return create_immediate_value(var)


def _name(function: Function, results: set[str]) -> None:
    for number, operation in enumerate(function.operations):
        operation.name = f"op{number}"
        for position, value in enumerate(operation.outputs):
            if value.name not in results:
                value.name = f"v{number}_{position}" if len(operation.outputs) > 1 else f"v{number}"


def _workspace(function: Function) -> int:
    operations = [operation for operation in function.operations if operation.op_type != "const"]
    last: dict[Var, int] = {}
    for number, operation in enumerate(operations):
        for given in operation.inputs.values():
            for value in given if isinstance(given, list | tuple) else [given]:
                last[value] = number
    for value in function.outputs:
        last[value] = len(operations)
    ends: dict[int, int] = {}
    alive = most = 0
    for number, operation in enumerate(operations):
        for value in operation.outputs:
            size = _size(value)
            alive += size
            ends[last.get(value, number)] = ends.get(last.get(value, number), 0) + size
        most = max(most, alive)
        alive -= ends.pop(number, 0)
    return most


def _size(value: Var) -> int:
    count = 1
    for extent in value.shape:
        count *= int(extent)
    return count * _BYTES[types.builtin_to_string(value.dtype)]
