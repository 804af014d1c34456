# SPDX-License-Identifier: Apache-2.0
"""Manifest records of graphs, and of the artifacts that targets compile from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from bespoke.bundle.fields import MAX_COUNT, Bytes, ElementType, FileName, Name, OptionValue, Range, Sha256, Shape
from bespoke.config import Settings, as_tuple

__all__ = ["ArtifactRecord", "BakedRecord", "FeatureRecord", "GraphRecord", "TargetRecord", "TensorRecord"]


class TensorRecord(Settings):
    """An operand or result of a graph."""

    name: Name = Field(description="path in the traced function's arguments, such as weights.q_proj.codes")
    shape: Shape = Field(description="sizes, outermost first")
    dtype: ElementType = Field(description="type of the elements")
    role: Name = Field(description="its role in the graph: weight, adapter, batch, ...")


class GraphRecord(Settings):
    """An exported function. Equal computations are the same graph, under any name."""

    key: Sha256 = Field(description="hash of the traced computation")
    name: Name = Field(description="name of the function, for people")
    file: FileName = Field(description="the exported program: model.json of torch.export, stripped")
    inputs: Annotated[tuple[TensorRecord, ...], BeforeValidator(as_tuple)] = Field(
        max_length=4096, description="operands in order"
    )
    outputs: Annotated[tuple[TensorRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=4096, description="results in order"
    )


class BakedRecord(Settings):
    """A weight that an artifact contains in place of one of the graph's operands."""

    operand: Name = Field(description="operand of the graph, which the artifact does not take")
    weight: Name = Field(description="group and tensor, with a dot between them: block_00.q_proj.codes")
    rows: Range | None = Field(description="first row of the operand, and the row after its last; null: all")
    columns: Range | None = Field(description="first column that is used, and the column after the last; null: all")
    column_start: int | None = Field(
        ge=0,
        le=MAX_COUNT,
        description="value of the graph's column_start; null: the operand's columns are not cut",
    )


class ArtifactRecord(Settings):
    """A target's compiled form of a graph, or of a graph and its weights."""

    graph: Sha256 = Field(description="key of the graph")
    operands: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] = Field(
        max_length=4096, description="operands that the artifact takes, in its order, by the graph's names"
    )
    baked: Annotated[tuple[BakedRecord, ...], BeforeValidator(as_tuple)] = Field(
        default=(), max_length=4096, description="weights that are part of it; none: it serves every call of the graph"
    )
    numbers: dict[Name, Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]] = Field(
        default={}, max_length=256, description="values of the other operands that are part of it, such as column_start"
    )
    delegates: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        max_length=16,
        description="delegates of the target's engine that compute parts of it, by the engine's names, such as "
        "XnnpackBackend for the processor and QnnBackend for the NPU; none: the engine alone",
    )
    file: FileName = Field(description="the artifact")
    workspace_bytes: Bytes = Field(
        description="workspace: bytes of a call in addition to its operands, free again after it"
    )
    engine_bytes: Bytes = Field(description="bytes that the engine allocates for it and keeps for all artifacts")


class FeatureRecord(Settings):
    """The form in which a target's artifacts take and return tensors of a type and shape, if that is not their own."""

    tensor_dtype: ElementType = Field(description="type of the graph's tensor")
    tensor_shape: Shape = Field(description="its sizes")
    dtype: Literal["float32", "float16", "uint8", "int32", "int64", "int8"] = Field(
        description="type of the artifact's tensor"
    )
    shape: Shape = Field(description="sizes of the artifact's tensor")
    view: Literal["same", "bytes", "value"] = Field(
        description="how the two convert. same: the same elements. bytes: the same bytes, read as the other type. "
        "value: each element is converted; a scalar beyond 2^30 of either sign becomes 2^30 of that sign, "
        "no other tensor may have such an element"
    )


class TargetRecord(Settings):
    """A target that the bundle is compiled for."""

    name: Name = Field(description="name of the target plugin")
    options: dict[Name, OptionValue] = Field(max_length=256, description="options of the plugin, all of them resolved")
    artifacts: Annotated[tuple[ArtifactRecord, ...], BeforeValidator(as_tuple)] = Field(
        max_length=4096, description="an artifact for each graph, or for each graph and the weights baked into it"
    )
    features: Annotated[tuple[FeatureRecord, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        max_length=4096,
        description="tensors that its artifacts take and return in another form; all others pass unchanged. "
        "If an artifact names them, operand i of its list is x<i>, result i of the graph y<i>",
    )
