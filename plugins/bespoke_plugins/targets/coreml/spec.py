# SPDX-License-Identifier: Apache-2.0
"""A MIL program as the bytes of one file: no weight file beside it, and the same bytes whenever it is written.

coremltools numbers names by counters of the process and leaves the order of protobuf's maps to chance. So names are given anew, in
the order of the program, the description is written here, and maps are ordered.
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
    """`workspace_bytes`: the largest sum of values of a call that are alive at once, apart from operands and constants. What Core
    ML itself takes is known on its devices alone."""

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
            one = side.add(name=feature.name, shortDescription=feature.description)
            one.type.multiArrayType.CopyFrom(_ARRAY(shape=feature.shape, dataType=_TYPES[feature.dtype]))
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
