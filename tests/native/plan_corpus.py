# SPDX-License-Identifier: Apache-2.0
"""Small real plans, of methods and for answers, with what a core needs to run them, for bindings/native/fuzz/execute.cpp:
`python -m tests.native.plan_corpus FILE`.

Plans of a model of one block. There are no weights: the engine that runs them computes nothing.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bespoke.compiler.generation import generation_request
from bespoke.compiler.plan_request import PlanRequest, record_sections, training_request
from bespoke.compiler.request import Method
from bespoke.config import Lora, Training
from bespoke.graph.trace import Tracer
from bespoke.model.spec import ModelSpec
from bespoke.plan.compile import compile_plan, with_liveness
from bespoke.plan.costs import TORCH_COSTS
from bespoke.plan.instructions import DTYPE_BYTES, Call, Named, ValueRecord
from bespoke.plan.kinds import GENERATION
from bespoke.plugins import get
from bespoke.testing.tiny import tiny_models

CONTEXT = 8
CHUNK = 3  # tokens of a prompt: two chunks, and two tokens for which the cache has no room to pad
# name of the case, optimizer, its options, training
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("mebp", "mebp", {}, {"sequence_lengths": (3, 4), "batch_size": 2}),
    (
        "mesp",
        "mesp",
        {"update": "adamw"},
        {"sequence_lengths": (4,), "batch_size": 2, "accumulation": 2, "clip_norm": 1.0},
    ),
    ("mezo", "mezo", {"queries": 2}, {"sequence_lengths": (3,), "batch_size": 1}),
    ("trailing", "prge", {"queries": 2, "dual_forwarding": True}, {"sequence_lengths": (5,), "batch_size": 1}),
    ("simpo", "simpo", {}, {"sequence_lengths": (3,), "batch_size": 2}),
    ("guided", "zgr", {"guidance_columns": 2}, {"sequence_lengths": (3,), "batch_size": 1}),
    ("projected", "mesp", {"update": "sgd", "federated_directions": 2}, {"sequence_lengths": (3,), "batch_size": 1}),
]


def model() -> ModelSpec:
    plain = tiny_models()["plain"].config
    config = plain.model_copy(
        update={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_layers": 1,
            "num_heads": 2,
            "num_kv_heads": 1,
            "head_dim": 8,
            "vocab_size": 17,
            "sliding_layers": (False,),
        }
    )
    return ModelSpec(config, Lora(rank=2, alpha=3.0))


def corpus() -> dict[str, Any]:
    spec, tracer = model(), Tracer()
    methods: list[dict[str, Any]] = []
    graphs: dict[str, dict[str, Any]] = {}
    weights: dict[str, dict[str, Any]] = {}

    def planned(request: PlanRequest) -> dict[str, Any]:
        b = record_sections(request, spec, tracer, {})
        length = request.sequence_length
        plan = compile_plan(
            b.draft,
            with_liveness(b.draft),
            TORCH_COSTS,
            method=request.method,
            sequence_length=length,
            batch_size=request.training.batch_size,
            choices=b.choices,
        )
        for call in (i for code in plan.sections.values() for i in code if isinstance(i, Call)):
            key = plan.graphs[call.graph].key
            graphs.setdefault(key, record(tracer.graphs[key], [plan.values[operand[0]] for operand in call.operands]))
        for value in plan.values:
            if value.role == "weight":
                group, tensor = value.place.name.split(".", 1)  # type: ignore[union-attr]
                weights.setdefault(group, {})[tensor] = {"dtype": value.dtype, "shape": value.shape}
        return {"sequence_length": length, "document": plan.model_dump(mode="json")}

    def add(requests: list[PlanRequest], scalars: dict[str, float]) -> None:
        plans = [planned(request) for request in requests]
        methods.append(
            {
                "name": requests[0].method,
                "answers": requests[0].method == GENERATION,
                "training": requests[0].training.model_dump(mode="json"),
                "scalars": scalars,
                "replayable": all(plan["document"]["replayable"] for plan in plans),
                "plans": plans,
            }
        )

    for name, plugin, options, training in CASES:
        settings = Training(**training)
        optimizer = get("optimizer", plugin)
        chosen = optimizer.Options(**options)
        method = Method(name, optimizer, chosen, settings)
        add(
            [training_request(method, length, CONTEXT, TORCH_COSTS) for length in settings.sequence_lengths],
            method.scalars,
        )
    add([generation_request(CHUNK, CONTEXT, TORCH_COSTS, draft_tokens=1)], {})
    for graph in library(methods):
        graphs[graph["key"]] = graph
    kinds = (("float32", 1), ("float32", 2), ("float16", 2), ("uint8", 2))
    weights["extra"] = {f"{dtype}_{rank}": {"dtype": dtype, "shape": [2] * rank} for dtype, rank in kinds}
    sizes = {"vocab_size": spec.config.vocab_size, "context_length": CONTEXT}
    return {**sizes, "methods": methods, "graphs": list(graphs.values()), "weights": weights}


def record(graph: Any, operands: list[ValueRecord]) -> dict[str, Any]:
    def specs(given: Any) -> list[dict[str, Any]]:
        return [{"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype, "role": "any"} for spec in given]

    inputs, outputs = specs(graph.inputs), specs(graph.outputs)
    return {"key": graph.key, "name": graph.name, "inputs": inputs, "outputs": outputs, "gather": gather(operands)}


def gather(operands: list[ValueRecord]) -> list[int] | None:
    """Positions of token ids and of a table whose rows they name: the engine reads the rows."""
    ids = [n for n, value in enumerate(operands) if value.role == "batch" and value.dtype == "int64"]
    named = [value.place.name if isinstance(value.place, Named) else "" for value in operands]
    tables = [n for n, name in enumerate(named) if name == "embedding.table.codes"]
    return [ids[0], tables[0]] if ids and tables else None


def library(methods: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Graphs that make and take a value of each dtype and rank, and that take batch tensors of two copies."""
    number: dict[str, Any] = {"name": "made", "shape": [], "dtype": "float32", "role": "temporary"}
    key = itertools.count(1)

    def graph(name: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> dict[str, Any]:
        return {"key": f"{next(key):064x}", "name": name, "inputs": inputs, "outputs": outputs, "gather": None}

    for dtype in DTYPE_BYTES:
        for rank in range(9):
            value = {"name": "value", "shape": [2] * rank, "dtype": dtype, "role": "temporary"}
            yield graph(f"make_{dtype}_{rank}", [], [value])
            yield graph(f"take_{dtype}_{rank}", [value], [number])
            if rank:
                yield graph(f"half_{dtype}_{rank}", [{**value, "shape": [1, *value["shape"][1:]]}], [number])
    for method in methods:
        batch = method["training"]["batch_size"]
        for plan in method["plans"]:
            for dtype in ("int64", "float32"):
                value = {
                    "name": "value",
                    "shape": [2 * batch, plan["sequence_length"]],
                    "dtype": dtype,
                    "role": "batch",
                }
                yield graph(f"copies_{dtype}_{2 * batch}_{plan['sequence_length']}", [value], [number])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(corpus()))
