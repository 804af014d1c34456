# SPDX-License-Identifier: Apache-2.0
"""Keys of baked artifacts: a target that bakes weights compiles each graph once for every set of quantized weights of its calls.

Two calls share an artifact if they give the same rows of the same weights to the same graph, with the same column_start. Codes,
scales and column_start become part of it. All else (activations, adapter, norms, the vocabulary's first row) stays an operand.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bespoke.bundle.target_records import BakedRecord
from bespoke.contracts import Baked
from bespoke.errors import PlanError
from bespoke.format.tensors import map_tensors
from bespoke.graph.trace import Graph
from bespoke.ops import EMBEDDING_INT4, HEAD_CHUNK_GRADIENT_INT4, HEAD_CHUNK_INT4, LINEAR_INT4, LINEAR_TRANSPOSED_INT4
from bespoke.plan.instructions import Call, Named, Number, Plan

__all__ = ["BakedKey", "baked_keys", "quantized_operands", "random_weights"]

# operator -> positions of codes, scales, column_start and the number of columns among its arguments
_OPERATORS: Mapping[str, tuple[int, int, int | None, int | None]] = {
    LINEAR_INT4: (1, 2, 3, 4),
    LINEAR_TRANSPOSED_INT4: (1, 2, 3, 4),
    EMBEDDING_INT4: (1, 2, None, 3),
    HEAD_CHUNK_INT4: (1, 2, None, None),
    HEAD_CHUNK_GRADIENT_INT4: (1, 2, None, None),
}


@dataclass(frozen=True)
class QuantizedOperands:
    """Positions of a graph's operands that an artifact may contain. `columns`: how many columns of a weight are used; None: all."""

    weight: int  # codes or scales
    column_start: int | None
    columns: int | None


@dataclass(frozen=True)
class BakedKey:
    """Identifies one artifact: a graph and the weights in it. Without `records` it serves every call of the graph."""

    graph: Graph
    records: tuple[BakedRecord, ...]
    numbers: tuple[tuple[str, int], ...]  # column_start by the operand's name

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands that the artifact still takes, in order."""
        baked = {*(record.operand for record in self.records), *(name for name, _ in self.numbers)}
        return tuple(spec.name for spec in self.graph.inputs if spec.name not in baked)

    def baked(self, weights: Mapping[str, Path]) -> Baked:
        """Returns the key with its tensors: the used rows with all columns, from the bundle's files (by group)."""
        arrays: dict[str, np.ndarray] = {}
        for record in self.records:
            group, _, tensor = record.weight.partition(".")
            whole = map_tensors(weights[group])[tensor]
            arrays[record.operand] = whole if record.rows is None else whole[record.rows[0] : record.rows[1]]
        arrays |= {name: np.array(number, np.int64) for name, number in self.numbers}
        identity = [self.graph.key, [record.model_dump(mode="json") for record in self.records], self.numbers]
        return Baked(hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest(), arrays)


def random_weights(baked: Baked) -> Baked:
    """Returns random weights of the same size and key, for the size of an artifact whose weights were not read."""
    random, drawn = np.random.default_rng(0), dict(baked.operands)
    for name, array in baked.operands.items():
        if array.dtype == np.uint8:  # codes
            drawn[name] = random.integers(256, size=array.shape, dtype=np.uint8)
        elif array.dtype == np.float16:  # scales
            drawn[name] = random.uniform(0.01, 0.02, array.shape).astype(np.float16)
    return Baked(baked.key, drawn)


def quantized_operands(graph: Graph) -> list[QuantizedOperands]:
    """Codes and scales that a graph takes as operands and uses, in the operands' order. A weight appears once for each slice."""
    position = {
        node: number for number, node in enumerate(n for n in graph.module.graph.nodes if n.op == "placeholder")
    }
    operands: dict[QuantizedOperands, None] = {}
    for node in graph.module.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem or str(node.target) not in _OPERATORS:
            continue
        *weights, start, columns = _OPERATORS[str(node.target)]
        cut = node.args[start] if start is not None else None
        for place in weights:
            if not isinstance(node.args[place], torch.fx.Node) or node.args[place] not in position:
                raise PlanError(
                    f"Graph '{graph.name}'",
                    got="a weight that the graph itself computes",
                    expected="operands",
                    next_step="Give codes and scales to the function as they are",
                )
            operands[
                QuantizedOperands(
                    position[node.args[place]],
                    None if cut is None else position[cut],
                    None if columns is None or cut is None else node.args[columns],
                )
            ] = None
    return sorted(operands, key=lambda operand: operand.weight)


def baked_keys(plans: Iterable[Plan], graphs: Mapping[str, Graph], baking: Collection[str]) -> list[BakedKey]:
    """Keys of all calls, each once, in the order of the plans. `baking`: keys of the graphs whose artifacts contain weights."""
    keys: dict[BakedKey, None] = {}
    operands = {key: quantized_operands(graph) if key in baking else [] for key, graph in graphs.items()}
    for plan in plans:
        for code in plan.sections.values():
            for call in code:
                if isinstance(call, Call):
                    key = plan.graphs[call.graph].key
                    keys[_key(plan, call, graphs[key], operands[key])] = None
    return list(keys)


def _key(plan: Plan, call: Call, graph: Graph, quantized: list[QuantizedOperands]) -> BakedKey:
    records, numbers = [], {}
    for operand in quantized:
        value, *cut = call.operands[operand.weight]
        place = plan.values[value].place
        start = None if operand.column_start is None else plan.values[call.operands[operand.column_start][0]].place
        if not isinstance(place, Named) or len(cut) > 2 or not isinstance(start, Number | None):
            raise PlanError(
                f"Graph '{graph.name}'",
                got=f"an operand '{graph.inputs[operand.weight].name}' that is known only at run time",
                expected="rows and columns of a weight that the plan names, for a target that bakes weights",
                next_step="Choose a target that takes weights as operands",
            )
        number = None if start is None else start.number
        if number is not None and operand.column_start is not None:
            numbers[graph.inputs[operand.column_start].name] = number
        records.append(
            BakedRecord(
                operand=graph.inputs[operand.weight].name,
                weight=place.name,
                rows=(cut[0], cut[0] + cut[1]) if cut else None,
                columns=None if number is None or operand.columns is None else (number, number + operand.columns),
                column_start=number,
            )
        )
    return BakedKey(graph, tuple(records), tuple(sorted(numbers.items())))
