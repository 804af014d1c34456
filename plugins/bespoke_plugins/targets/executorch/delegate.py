# SPDX-License-Identifier: Apache-2.0
"""Serializes a stage's nodes for ExecuTorch's XNNPACK delegate and computes what XNNPACK allocates to run them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bespoke_plugins.targets.executorch.qb4w.weight import GROUP, PRODUCT, SHIFTS, Int4Weight
from bespoke_plugins.targets.executorch.tape import Op, Value
from bespoke_plugins.targets.executorch.workspace import xnnpack_bytes

INVALID = 2**32 - 1
INPUT, OUTPUT = 1, 2  # XNN_VALUE_FLAG_EXTERNAL_*
TRANSPOSED_WEIGHTS = 1  # XNN_FLAG_TRANSPOSE_WEIGHTS
CONSTANT_ALIGNMENT = 16
BY_NAME = 2**64 - 1  # offset that marks a named constant
_UNARY = {
    "negate": "Negate",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "SquareRoot",
    "rsqrt": "ReciprocalSquareRoot",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "abs": "Abs",
    "floor": "Floor",
    "ceiling": "Ceiling",
    "sin": "Sin",
    "cos": "Cos",
    "gelu": "Gelu",
    "softmax": "Softmax",
    "clamp": "Clamp",
    "reshape": "StaticReshape",
}
_BINARY = {
    "add": "Add",
    "subtract": "Subtract",
    "multiply": "Multiply",
    "divide": "Div",
    "maximum": "Maximum",
    "minimum": "Minimum",
    "matmul": "BatchMatrixMultiply",
}


class Delegate:
    """The graph of one stage. `inputs` and `outputs` are in the order of the delegate's arguments."""

    def __init__(self, nodes: Sequence[Op], needed_later: set[Value]) -> None:
        self.nodes = nodes
        computed = {output for op in nodes for output in op.outputs}
        self.outputs = [output for op in nodes for output in op.outputs if output in needed_later]
        read = dict.fromkeys(value for op in nodes for value in op.inputs)
        self.inputs = [value for value in read if value.constant is None and value.base not in computed]
        self.workspace_bytes = xnnpack_bytes(nodes, {value.base for value in (*self.inputs, *self.outputs)})

    def to_bytes(self) -> bytes:
        from executorch.backends.xnnpack.serialization import xnnpack_graph_schema as schema
        from executorch.backends.xnnpack.serialization.xnnpack_graph_serialize import serialize_xnnpack_binary

        self._schema: Any = schema
        self._graph = schema.XNNGraph(
            version="0",
            xnodes=[],
            xvalues=[],
            num_externs=len(self.inputs) + len(self.outputs),
            input_ids=[],
            output_ids=[],
            constant_data=[schema.ConstantDataOffset(0, 0)],
        )
        self._data = bytearray()
        self._ids: dict[Value, int] = {}
        self._rows: dict[Value, int] = {}  # value -> number of its int8 copy
        self.named: dict[str, bytes] = {}  # constants stored outside the delegate, by name
        for external, value in enumerate(self.inputs):
            self._graph.input_ids.append(self._define(value, external, INPUT))
        for external, value in enumerate(self.outputs, len(self.inputs)):
            self._graph.output_ids.append(self._define(value, external, OUTPUT))
        for op in self.nodes:
            self._node(op)
        return serialize_xnnpack_binary(self._graph, self._data)

    def _define(self, value: Value, external: int = INVALID, flags: int = 0) -> int:
        data = 0
        if value.constant is not None:
            data = self._constant(np.broadcast_to(value.constant, value.shape).tobytes())
        self._ids[value] = number = self._tensor("fp32", value.shape, data, external, flags)
        return number

    def _constant(self, data: bytes) -> int:
        self._data += bytes(-len(self._data) % CONSTANT_ALIGNMENT)
        number = len(self._graph.constant_data)
        self._graph.constant_data.append(self._schema.ConstantDataOffset(len(self._data), len(data), None))
        self._data += data
        return number

    def _tensor(
        self,
        datatype: str,
        shape: Sequence[int],
        data: int = 0,
        external: int = INVALID,
        flags: int = 0,
        quantized: Any = None,
    ) -> int:
        number = len(self._graph.xvalues)
        tensor: Any = self._schema.XNNTensorValue(
            datatype=self._schema.XNNDatatype[f"xnn_datatype_{datatype}"],
            num_dims=len(shape),
            dims=list(shape),
            constant_buffer_idx=data,
            external_id=external,
            flags=flags,
            id_out=number,
        )
        if quantized is not None:
            tensor = self._schema.XNNQuantizedTensorValue(tensor, quantized)
        self._graph.xvalues.append(self._schema.XValue(tensor))
        return number

    def _int8(self, value: Value) -> int:
        """The value in int8. XNNPACK chooses a scale and a zero point for each row at run time."""
        if value not in self._rows:
            source = self._id(value)
            self._rows[value] = self._tensor("qdint8", value.shape, quantized=self._schema.PerTokenDynamicQuant(1))
            self._append("Convert", input_id=source, output_id=self._rows[value])
        return self._rows[value]

    def _named(self, name: str, data: np.ndarray) -> int:
        """A constant that XNNPACK looks up by name in its file of packed weights. It packs an unnamed constant at every load."""
        number = len(self._graph.constant_data)
        self._graph.constant_data.append(self._schema.ConstantDataOffset(BY_NAME, data.nbytes, name))
        self.named[name] = data.tobytes()
        return number

    def _weight(self, weight: Int4Weight) -> int:
        codes = self._named(weight.name, weight.codes)
        quantized = self._schema.PerChannelGroupQuant(
            scale=[],
            channel_dim=0,
            group_size=GROUP,
            scale_buffer_idx=self._constant(weight.scales.tobytes()),
            num_scales=weight.scales.size,
        )
        return self._tensor("qbint4", weight.shape, codes, quantized=quantized)

    def _id(self, value: Value) -> int:
        if value in self._ids:
            return self._ids[value]
        if value.viewed is None or value.constant is not None:
            return self._define(value)
        source = self._id(value.viewed)
        number = self._define(value)
        self._append(
            "StaticReshape", input_id=source, output_id=number, num_dims=len(value.shape), new_shape=list(value.shape)
        )
        return number

    def _append(self, name: str, bounds: tuple[float, float] | None = None, **fields: Any) -> None:
        limits = None if bounds is None else self._schema.OutputMinMax(*[_bound(b) for b in bounds])
        node = getattr(self._schema, f"XNN{name}")(**({"flags": 0} | fields))
        self._graph.xnodes.append(self._schema.XNode(xnode_union=node, debug_handle=0, output_min_max=limits))

    def _node(self, op: Op) -> None:
        if op.name == PRODUCT:
            rows, weight = self._int8(op.inputs[0]), self._weight(op.attributes["weight"])
            output = self._id(op.outputs[0])
            self._append("FullyConnected", input1_id=rows, filter_id=weight, bias_id=INVALID, output_id=output)
            return
        if op.name == SHIFTS:
            of = op.attributes["weight"]
            shifts = self._tensor("fp32", of.shifts.shape, self._named(of.shifts_name, of.shifts))
            sums, output = self._id(op.inputs[0]), self._id(op.outputs[0])
            self._append("FullyConnected", input1_id=sums, filter_id=shifts, bias_id=INVALID, output_id=output)
            return
        inputs = [self._id(value) for value in op.inputs]
        output, shape, given = self._id(op.outputs[0]), op.outputs[0].shape, op.attributes
        if op.name == "matmul" and len(shape) == 2:
            flags = 0 if given["flag"] else TRANSPOSED_WEIGHTS
            self._append(
                "FullyConnected",
                input1_id=inputs[0],
                filter_id=inputs[1],
                bias_id=INVALID,
                output_id=output,
                flags=flags,
            )
        elif op.name in _BINARY:
            self._append(
                _BINARY[op.name], input1_id=inputs[0], input2_id=inputs[1], output_id=output, flags=given.get("flag", 0)
            )
        elif op.name == "clamp":
            self._append("Clamp", bounds=(given["low"], given["high"]), input_id=inputs[0], output_id=output)
        elif op.name in _UNARY:
            self._append(_UNARY[op.name], input_id=inputs[0], output_id=output)
        elif op.name == "transpose":
            order = list(given["permutation"])
            self._append("StaticTranspose", num_dims=len(order), perm=order, input_id=inputs[0], output_id=output)
        elif op.name == "slice":
            offsets = list(given["offsets"])
            self._append(
                "StaticSlice",
                num_dims=len(offsets),
                offsets=offsets,
                sizes=list(shape),
                input_id=inputs[0],
                output_id=output,
            )
        elif op.name == "pad":
            self._append(
                "StaticConstantPad",
                pre_paddings=list(given["before"]),
                post_paddings=list(given["after"]),
                padding_value=0.0,
                input_id=inputs[0],
                output_id=output,
            )
        elif op.name == "concatenate":
            ids = inputs + [INVALID] * (5 - len(inputs))
            numbered: dict[str, Any] = {f"input{i}_id": number for i, number in enumerate(ids, 1)}
            self._append(f"Concatenate{len(inputs)}", axis=given["axis"], output_id=output, **numbered)
        else:
            raise AssertionError(op.name)


def _bound(number: float) -> float | str:
    return number if math.isfinite(number) else "inf" if number > 0 else "-inf"
