# SPDX-License-Identifier: Apache-2.0
"""A Core ML model with one MIL program as records, parsed by `Model.proto`, `FeatureTypes.proto` and `MIL.proto`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bespoke_plugins.targets.coreml.mil.wire import Field, Message, read_message, refused

__all__ = ["Constant", "Feature", "Operation", "Reference", "Spec", "Type", "read_spec"]

MAIN = "main"
DTYPES: Mapping[int, str] = {
    1: "bool",
    2: "string",
    10: "fp16",
    11: "fp32",
    21: "int8",
    22: "int16",
    23: "int32",
    25: "int4",
}
_ARRAYS = {65_568: "fp32", 65_552: "fp16", 131_104: "int32", 131_080: "int8"}
NUMPY: Mapping[str, Any] = {
    "bool": np.bool_,
    "fp16": np.float16,
    "fp32": np.float32,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int4": np.int8,
}

_SCHEMA = {
    kind: {number: Field(*entry) for number, entry in fields.items()}
    for kind, fields in {
        "Model": {1: ("version", "number"), 2: ("description", "Description"), 502: ("program", "Program")},
        "Description": {1: ("input", "FeatureDescription"), 10: ("output", "FeatureDescription")},
        "FeatureDescription": {1: ("name", "text"), 2: ("description", "text"), 3: ("type", "FeatureType")},
        "FeatureType": {5: ("array", "ArrayType")},
        "ArrayType": {1: ("shape", "number"), 2: ("dtype", "number")},
        "Program": {1: ("version", "number"), 2: ("functions", "FunctionEntry")},
        "FunctionEntry": {1: ("key", "text"), 2: ("value", "Function")},
        "Function": {1: ("inputs", "NamedType"), 2: ("opset", "text"), 3: ("blocks", "BlockEntry")},
        "BlockEntry": {1: ("key", "text"), 2: ("value", "Block")},
        "Block": {2: ("outputs", "text"), 3: ("operations", "Operation")},
        "Operation": {
            1: ("type", "text"),
            2: ("inputs", "InputEntry"),
            3: ("outputs", "NamedType"),
            5: ("attributes", "AttributeEntry"),
        },
        "InputEntry": {1: ("key", "text"), 2: ("value", "Argument")},
        "AttributeEntry": {1: ("key", "text"), 2: ("value", "Value")},
        "Argument": {1: ("arguments", "Binding")},
        "Binding": {1: ("name", "text"), 2: ("value", "Value")},
        "NamedType": {1: ("name", "text"), 2: ("type", "ValueType")},
        "ValueType": {1: ("tensor", "TensorType")},
        "TensorType": {1: ("dtype", "number"), 2: ("rank", "number"), 3: ("dimensions", "Dimension")},
        "Dimension": {1: ("constant", "ConstantDimension")},
        "ConstantDimension": {1: ("size", "number")},
        "Value": {2: ("type", "ValueType"), 3: ("immediate", "Immediate")},
        "Immediate": {1: ("tensor", "TensorValue")},
        "TensorValue": {
            1: ("floats", "Bytes"),
            2: ("ints", "Numbers"),
            3: ("bools", "Numbers"),
            4: ("strings", "Texts"),
            7: ("bytes", "Bytes"),
        },
        "Bytes": {1: ("values", "bytes")},
        "Numbers": {1: ("values", "number")},
        "Texts": {1: ("values", "text")},
    }.items()
}


@dataclass(frozen=True)
class Type:
    """The type of a value. `dtype`: MIL's name of the element type."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Feature:
    """An input or output of the model. `description`: the author's text."""

    name: str
    type: Type
    description: str


@dataclass(frozen=True)
class Reference:
    """A value that is named."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant:
    """A value in the file: an array or a text."""

    value: Any
    type: Type


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation. `inputs`: each parameter's values; several if it takes a tuple."""

    kind: str
    name: str
    inputs: Mapping[str, tuple[Reference | Constant, ...]]
    outputs: tuple[tuple[str, Type], ...]


@dataclass(frozen=True)
class Spec:
    """A model. `version`: 9 needs iOS 18 and 10 needs iOS 26. `inputs` and `outputs` come from the description."""

    version: int
    opset: str
    inputs: tuple[Feature, ...]
    outputs: tuple[Feature, ...]
    operations: tuple[Operation, ...]


def read_spec(data: bytes | Path) -> Spec:
    """The model in these bytes. Raises DataError unless it is one MIL function with fixed shapes."""
    bytes_ = data if isinstance(data, bytes) else data.read_bytes()
    model = read_message(bytes_, "Model", _SCHEMA)
    functions = _one(_one(model, "program"), "functions", several="functions")
    if functions["key"] != [MAIN]:
        raise refused(f"the function {functions['key']}", f"'{MAIN}'")
    function = _one(functions, "value")
    specialised = _one(function, "blocks", several="specialisations of a function")
    block, opset = _one(specialised, "value"), _one(function, "opset")
    if specialised["key"] != [opset]:
        raise refused(f"a block for {specialised['key']}", f"one for the function's {opset}")
    description = _one(model, "description")
    inputs, outputs = (tuple(map(_feature, description.get(side, []))) for side in ("input", "output"))
    takes = dict(map(_named, function.get("inputs", [])))
    if takes != {feature.name: feature.type for feature in inputs}:
        raise refused("a description with other inputs than the function's", "the same names, shapes and types")
    if block["outputs"] != [feature.name for feature in outputs]:
        raise refused(f"a description of other outputs than {block['outputs']}", "the same names in the same order")
    return Spec(_one(model, "version"), opset, inputs, outputs, tuple(map(_operation, block["operations"])))


def _one(message: Message, name: str, several: str = "") -> Any:
    values = message.get(name, [])
    if len(values) != 1:
        raise refused(f"{len(values)} {several or name}", "one")
    return values[0]


def _feature(message: Message) -> Feature:
    array = _one(_one(message, "type"), "array")
    dtype = _ARRAYS.get(_one(array, "dtype"))
    if dtype is None:
        raise refused(f"arrays of type {array['dtype']}", f"one of {', '.join(_ARRAYS.values())}")
    return Feature(_one(message, "name"), Type(dtype, tuple(array["shape"])), "".join(message.get("description", [])))


def _type(message: Message) -> Type:
    tensor = _one(message, "tensor")
    dtype = DTYPES.get(_one(tensor, "dtype"))
    if dtype is None:
        raise refused(f"values of type {tensor['dtype']}", f"one of {', '.join(DTYPES.values())}")
    shape = tuple(sum(_one(size, "constant").get("size", [0])) for size in tensor.get("dimensions", []))
    if len(shape) != sum(tensor.get("rank", [0])):
        raise refused(f"{len(shape)} dimensions", f"the rank {tensor['rank']}")
    return Type(dtype, shape)


def _named(message: Message) -> tuple[str, Type]:
    return _one(message, "name"), _type(_one(message, "type"))


def _operation(message: Message) -> Operation:
    attributes = {_one(entry, "key"): _constant(_one(entry, "value")) for entry in message.get("attributes", [])}
    inputs: dict[str, tuple[Reference | Constant, ...]] = {
        _one(entry, "key"): tuple(map(_binding, _one(entry, "value")["arguments"]))
        for entry in message.get("inputs", [])
    }
    name = attributes.pop("name", None)
    return Operation(
        _one(message, "type"),
        "" if name is None else name.value,
        {**inputs, **{key: (value,) for key, value in attributes.items()}},
        tuple(map(_named, message.get("outputs", []))),
    )


def _binding(message: Message) -> Reference | Constant:
    return Reference(message["name"][0]) if "name" in message else _constant(_one(message, "value"))


def _constant(message: Message) -> Constant:
    kind = _type(_one(message, "type"))
    tensor = _one(_one(message, "immediate"), "tensor")
    ((how, values),) = tensor.items()
    parts = values[0].get("values", [])
    if kind.dtype == "string":
        return Constant(_one(values[0], "values"), kind)
    count = int(np.prod(kind.shape, dtype=np.int64))
    expected = {"fp32": "floats", "int32": "ints", "int16": "ints", "bool": "bools"}.get(kind.dtype, "bytes")
    if how != expected:
        raise refused(f"{kind.dtype} as {how}", expected)
    if how == "floats":
        array = np.frombuffer(b"".join(parts), "<f4")
    elif how == "bytes":
        raw = np.frombuffer(b"".join(parts), np.uint8)
        array = _unpacked(raw, count) if kind.dtype == "int4" else raw.view(NUMPY[kind.dtype])
    else:
        array = np.array(parts, NUMPY[kind.dtype])
    if array.size != count:
        raise refused(f"{array.size} elements of a constant", f"{count}, which its shape asks for")
    return Constant(array.reshape(kind.shape), kind)


def _unpacked(raw: np.ndarray, count: int) -> np.ndarray:
    """Unpacks two signed 4-bit numbers from each byte, the low one first."""
    both = np.stack([raw & 15, raw >> 4], -1).reshape(-1)[:count].astype(np.int8)
    return np.where(both > 7, both - 16, both).astype(np.int8)
