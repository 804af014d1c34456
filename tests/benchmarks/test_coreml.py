# SPDX-License-Identifier: Apache-2.0
"""Core ML specs: what they take to build beside ExecuTorch's programs, what fp16 costs in exactness, what baking costs in files.

Nothing here runs on Apple's runtime: errors are those of the interpreter, which rounds after each operation.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apple.coreml.graphs import distance, recorded
from tests.benchmarks.figures import Cell, write_table
from tests.support.models import tiny_config

from bespoke import plugins
from bespoke.compiler.baking import BakedKey, baked_keys, quantized_operands
from bespoke.compiler.plan_request import training_request
from bespoke.compiler.planner import Planner
from bespoke.compiler.request import Method
from bespoke.config import Lora, Training
from bespoke.contracts import Baked, Target
from bespoke.graph.trace import Tracer
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from bespoke.plan.instructions import Plan
from bespoke.testing.rig import Case, Rig, planned
from bespoke.testing.tiny import shared_tracer, tiny_adapter

EPSILONS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
STEPS = 8  # steps with different noise


def compiling(name: str) -> Target:
    target = plugins.get("target", name)
    return target


@pytest.mark.benchmark
def test_build_time_and_size(tmp_path: Path) -> None:
    graphs = [graph for graph, _ in recorded(["mesp"], (Case.of("plain", 7, 2),)).values()]
    rows: list[list[Cell]] = []
    for name, options in (("executorch", {}), ("coreml", {"weights": "int32"}), ("coreml", {"weights": "int8"})):
        target = compiling(name)
        target.lower(graphs[0], tmp_path, target.Options(**options))  # imports
        began, size = time.process_time(), 0
        for graph in graphs:
            size += target.lower(graph, tmp_path, target.Options(**options)).path.stat().st_size
        seconds = time.process_time() - began
        rows.append(
            [
                name,
                options.get("weights"),
                len(graphs),
                f"{seconds / len(graphs):.3f}",
                f"{size / len(graphs) / 1e3:.1f}",
            ]
        )
    write_table(
        "coreml_build",
        ("target", "weights", "graphs", "processor seconds a graph", "KB a graph"),
        rows,
        "Graphs of MeSP, evaluation and answers for a tiny model of two blocks; imports are not counted.",
    )


@pytest.mark.benchmark
def test_what_fp16_costs(tmp_path: Path) -> None:
    """Errors of forward graphs and of MeZO's g = (L(theta + eps z) - L(theta - eps z)) / (2 eps)."""
    target = compiling("coreml")
    errors: dict[str, list[float]] = {}
    for graph, operands in recorded(["mezo"], (Case.of("plain", 7, 2), Case.of("normed", 9, 2))).values():
        found = []
        for precision in ("fp32", "fp16"):
            path = target.lower(graph, tmp_path, target.Options(precision=precision)).path
            run = target.open(path, target.Options())
            assert run is not None
            found.append(distance(run(*operands), graph.module(*operands)))
        worst = errors.setdefault(graph.name, [0.0, 0.0])
        errors[graph.name] = [max(pair) for pair in zip(worst, found, strict=True)]
    write_table(
        "coreml_half",
        ("graph", "error in fp32", "error in fp16"),
        [[name, *pair] for name, pair in sorted(errors.items())],
        "Largest error of a result in terms of its largest value, against torch in fp32, over two tiny models.",
    )
    rows: list[list[Cell]] = []
    for epsilon in EPSILONS:
        exact, half = (np.array(differences(precision, epsilon, tmp_path)) for precision in (None, "fp16"))
        off = np.sqrt(np.mean((half - exact) ** 2))
        rows.append([epsilon, float(np.sqrt(np.mean(exact**2))), float(off), float(off / np.sqrt(np.mean(exact**2)))])
    write_table(
        "coreml_g",
        ("eps", "g in fp32 (rms)", "difference of g in fp16 (rms)", "share"),
        rows,
        f"{STEPS} steps of different noise at one adapter of a tiny model.",
    )


def differences(precision: str | None, epsilon: float, folder: Path) -> list[float]:
    """g of each step, through torch or through specs."""
    optimizer, target, case = plugins.get("optimizer", "mezo"), compiling("coreml"), Case.of("plain", 7, 2)
    options = optimizer.Options(epsilon=epsilon)
    plan = planned(optimizer, options, case)
    functions = None
    if precision is not None:
        chosen = target.Options(precision=precision)
        graphs = [shared_tracer().graphs[reference.key] for reference in plan.graphs]
        functions = [target.open(target.lower(graph, folder, chosen).path, chosen) for graph in graphs]
    found = []
    for step in range(1, STEPS + 1):
        rig = Rig(case, plan, optimizer, options, functions)  # type: ignore[arg-type]
        rig.buffers.fill(tiny_adapter(case.model_name))
        found += [float(number) for number in rig.step([rig.batch()], step=step, learning_rate=0.0).recorded]
    return found


# ---- baking ----------------------------------------------------------------------------------------------------------------------

HALF = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 4096,
}


def weights_of(key: BakedKey) -> Baked:
    """Random ones of the shapes that the graph takes."""
    rng, specs = np.random.default_rng(5), {spec.name: spec.shape for spec in key.graph.inputs}
    arrays: dict[str, np.ndarray] = {name: np.array(number, np.int64) for name, number in key.numbers}
    for record in key.records:
        shape = specs[record.operand]
        is_codes = record.weight.endswith(".codes")
        arrays[record.operand] = (
            rng.integers(0, 256, shape, np.uint8) if is_codes else rng.random(shape).astype(np.float16) / 100
        )
    said = repr([key.graph.key, key.records, key.numbers])
    return Baked(hashlib.sha256(said.encode()).hexdigest(), arrays)


def planned_blocks(folder: Path, *, bakes: bool) -> tuple[Plan, Tracer]:
    """MeSP at 128 tokens for two blocks of Qwen2.5-0.5B's dimensions."""
    tiny_config("qwen2", num_hidden_layers=2, **HALF).save_pretrained(folder)
    model = ModelSpec(read_config(folder), Lora(rank=8))
    optimizer, tracer = plugins.get("optimizer", "mesp"), Tracer()
    training, costs = Training(sequence_lengths=(128,), batch_size=1), compiling("coreml").costs
    request = training_request(Method("mesp", optimizer, optimizer.Options(), training), 128, 128, costs, bakes=bakes)
    return Planner(request, model, tracer).plan(None).plan, tracer


@pytest.mark.benchmark
def test_what_a_call_of_a_spec_holds(tmp_path: Path) -> None:
    target, held = compiling("coreml"), dict[str, list[float]]()
    plan, tracer = planned_blocks(tmp_path, bakes=False)
    for graph in (tracer.graphs[reference.key] for reference in plan.graphs):
        if quantized_operands(graph):
            forms = [
                target.lower(graph, tmp_path, target.Options(weights=form)).workspace_bytes
                for form in ("int32", "int8")
            ]
            held[graph.name] = max(held.get(graph.name, []), [size / 1e6 for size in (*forms, graph.workspace_bytes)])
    write_table(
        "coreml_held",
        ("graph", "int32, MB", "int8, MB", "torch, MB"),
        [[name, *sizes] for name, sizes in sorted(held.items(), key=lambda item: -item[1][0])],
        "The largest sum of a call's values that are alive at once, operands aside: MeSP at 128 tokens, a block of Qwen2.5-0.5B's "
        "dimensions, a vocabulary of 4096. torch decodes a bounded number of weights at a time.",
        machine="",
    )


@pytest.mark.benchmark
def test_what_baking_a_block_costs(tmp_path: Path) -> None:
    """A block of Qwen2.5-0.5B's dimensions in a plan of MeSP at 128 tokens."""
    target, rows = compiling("coreml"), []
    for weights in ("int32", "baked"):
        options: Any = target.Options(weights=weights)
        plan, tracer = planned_blocks(tmp_path, bakes=weights == "baked")
        every = baked_keys([plan], tracer.graphs, tracer.graphs)
        keys = [key for key in every if any("block_01." in one.weight for one in key.records)]
        began = time.process_time()
        if weights == "baked":
            paths = {target.lower(key.graph, tmp_path, options, weights_of(key)).path for key in keys}  # type: ignore[call-arg]
        else:
            paths = {target.lower(key.graph, tmp_path, options).path for key in keys}
        seconds, size = time.process_time() - began, sum(path.stat().st_size for path in paths)
        served = "one block" if weights == "baked" else "all blocks"
        rows.append([weights, len(paths), f"{size / 1e6:.2f}", f"{seconds:.1f}", served])
    write_table(
        "coreml_baked",
        ("weights", "specs", "MB", "processor seconds", "serve"),
        rows,
        "The graphs with quantized weights that a block calls in a step. A model of 24 such blocks needs the second line 24 times.",
    )
