# SPDX-License-Identifier: Apache-2.0
"""Keys of what a target bakes: each set of weights that a plan gives to a graph, once; and plans that make few of them."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import plugins
from bespoke.compiler.artifacts import Artifacts
from bespoke.compiler.baking import baked_keys
from bespoke.compiler.plan_request import training_request
from bespoke.compiler.planner import Planner
from bespoke.compiler.request import Method, TargetChoice
from bespoke.config import Lora, Settings, Training
from bespoke.contracts import Artifact, Baked, Target
from bespoke.errors import PlanError
from bespoke.format.tensors import write_arrays
from bespoke.graph.trace import Graph, Tracer
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import TORCH_COSTS
from bespoke.plan.instructions import Call, Plan
from tests.support.checks import few_of
from tests.support.models import tiny_config

WIDTH = 2048  # width of the MLP, from which more than one slice may be chosen
Planned = tuple[Plan, Tracer, ModelSpec]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    folder = tmp_path_factory.mktemp("wide")
    tiny_config("llama", num_hidden_layers=2, intermediate_size=WIDTH).save_pretrained(folder)
    return ModelSpec(read_config(folder), Lora(rank=2))


def planned(model: ModelSpec, *, bakes: bool, budget: int | None = None) -> Planned:
    optimizer, tracer = plugins.get("optimizer", "mesp"), Tracer()
    training = Training(sequence_lengths=(16,), batch_size=1)
    method = Method("mesp", optimizer, optimizer.Options(), training)
    request = training_request(method, 16, 16, TORCH_COSTS, bakes=bakes)
    return Planner(request, model, tracer).plan(budget).plan, tracer, model


@pytest.fixture(scope="module")
def whole(model: ModelSpec) -> Planned:
    return planned(model, bakes=True)


@pytest.fixture(scope="module")
def sliced(model: ModelSpec) -> Planned:
    """A plan of the least memory, with slices."""
    fastest = planned(model, bakes=False)[0].estimate.peak_bytes
    for share in (0.99, 0.97, 0.95, 0.9, 0.8):
        found = planned(model, bakes=False, budget=int(share * fastest))
        if found[0].choices["mlp_slice"] < WIDTH:
            return found
    raise AssertionError("no budget asks for slices")


def given(plan: Plan) -> set[tuple[object, ...]]:
    """Graph, weights with rows, and numbers of each call with quantized weights, read off the plan without a graph."""
    found = set()
    for code in plan.sections.values():
        for call in code:
            if isinstance(call, Call):
                values = [(plan.values[operand[0]], operand[1:]) for operand in call.operands]
                weights = [
                    (v.place.name, *cut) for v, cut in values if v.role == "weight" and v.dtype in ("uint8", "float16")
                ]  # type: ignore[union-attr]
                names = [v.place.number for v, _ in values if v.role == "constant"] if weights else []  # type: ignore[union-attr]
                starts = names if plan.graphs[call.graph].name.startswith("mlp_slice") else []
                found.add((plan.graphs[call.graph].key, tuple(weights), tuple(starts)))
    return found


@pytest.mark.parametrize("kind", few_of(("whole", "sliced"), ("whole",)))
def test_there_is_a_key_for_each_set_of_weights_that_a_graph_is_given(
    kind: str, request: pytest.FixtureRequest
) -> None:
    plan, tracer, _ = request.getfixturevalue(kind)
    keys = baked_keys([plan, plan], tracer.graphs, tracer.graphs)
    assert len(keys) == len(set(keys)) == len(given(plan))
    for key in keys:
        holders = [node for node in key.graph.module.graph.nodes if node.op == "placeholder"]
        quantized = [
            spec.name
            for spec, node in zip(key.graph.inputs, holders, strict=True)
            if spec.dtype in ("uint8", "float16")
            and node.users  # MeSP's first block goes back no further, and leaves some alone
        ]
        assert [record.operand for record in key.records] == quantized
        assert not set(quantized) & set(key.operands)
        for record in key.records:
            if record.columns is not None:
                assert record.columns[0] == record.column_start
                assert record.columns[1] <= WIDTH


@pytest.mark.slow
def test_a_target_that_bakes_gets_one_slice_and_fewer_keys(whole: Planned, sliced: Planned) -> None:
    assert whole[0].choices["mlp_slice"] == WIDTH
    assert whole[0].choices["query_tile"] == 16
    assert sliced[0].choices["mlp_slice"] < WIDTH
    of_block = [
        sum(
            any("block_00." in one.weight for one in key.records)
            for key in baked_keys([plan], tracer.graphs, tracer.graphs)
        )
        for plan, tracer, _ in (whole, sliced)
    ]
    assert 0 < of_block[0] < of_block[1]


def test_a_graph_that_the_target_leaves_alone_has_one_key_and_keeps_its_operands(whole: Planned) -> None:
    plan, tracer, _ = whole
    left = {key for key, graph in tracer.graphs.items() if graph.name == "embed"}
    keys = baked_keys([plan], tracer.graphs, tracer.graphs.keys() - left)
    (embed,) = [key for key in keys if key.graph.key in left]
    assert not embed.records
    assert embed.operands == tuple(spec.name for spec in embed.graph.inputs)
    assert all(key.records for key in keys if key.graph.name == "attention_inputs")


Weights = tuple[dict[str, Path], dict[str, np.ndarray]]  # files by group, and what is in them


@pytest.fixture(scope="module")
def weights(model: ModelSpec, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    folder, files, arrays = tmp_path_factory.mktemp("weights"), {}, {}
    rng = np.random.default_rng(1)
    for group in ("embedding", *model.blocks, "head"):
        tensors = {}
        for piece, (*rows, columns) in model.weight_shapes(group).items():
            groups = -(-columns // 32)
            if model.is_quantized(piece):
                tensors[f"{piece}.codes"] = rng.integers(0, 256, (*rows, 16 * groups), np.uint8)
                tensors[f"{piece}.scales"] = rng.random((*rows, groups)).astype(np.float16)
            else:
                tensors[piece] = np.ones((*rows, columns), np.float32)
        files[group] = folder / f"{group}.safetensors"
        write_arrays(files[group], tensors)
        arrays |= {f"{group}.{name}": tensor for name, tensor in tensors.items()}
    return files, arrays


@pytest.mark.slow
def test_a_key_brings_the_rows_of_its_weights(sliced: Planned, weights: Weights) -> None:
    (plan, tracer, _), (files, arrays) = sliced, weights
    made = [(key, key.baked(files)) for key in baked_keys([plan], tracer.graphs, tracer.graphs) if key.records]
    assert len({baked.key for _, baked in made}) == len(made)
    cut = 0
    for key, baked in made:
        shapes = {spec.name: spec.shape for spec in key.graph.inputs}
        assert {name: array.shape for name, array in baked.operands.items()} == {
            name: shapes[name] for name in baked.operands
        }
        for record in key.records:
            start, end = record.rows or (0, len(arrays[record.weight]))
            cut += record.rows is not None
            assert np.array_equal(baked.operands[record.operand], arrays[record.weight][start:end])
    assert cut


def test_weights_that_are_known_only_at_run_time_are_refused(whole: Planned) -> None:
    plan, tracer, _ = whole
    weight = next(v for v in plan.values if v.dtype == "uint8")
    scalar = next(number for number, v in enumerate(plan.values) if v.role == "scalar")
    changed = plan.model_copy(deep=True)
    for code in changed.sections.values():
        for call in code:
            if isinstance(call, Call):
                for operand in call.operands:
                    if changed.values[operand[0]] == weight:
                        operand[1:] = [0, weight.shape[0], scalar]
    with pytest.raises(PlanError, match="known only at run time"):
        baked_keys([changed], tracer.graphs, tracer.graphs)


class Squeezing(Target):
    """A target whose compiler makes less of zeros."""

    name, costs, Options = "squeezing", TORCH_COSTS, Settings

    def __init__(self) -> None:
        self.lowered = 0

    def bakes(self, options: Any, graph: Graph | None = None) -> bool:
        return True

    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Artifact:
        self.lowered += 1
        path = folder / f"{baked.key if baked else graph.key}.z"
        path.write_bytes(
            b"".join(zlib.compress(array.tobytes()) for array in baked.operands.values()) if baked else b""
        )
        return Artifact(path, 0)

    def open(self, path: Path, options: Any) -> None:
        return None


def test_an_estimate_has_the_size_of_programs_without_their_weights_and_compiles_each_shape_once(
    whole: Planned, weights: Weights, tmp_path: Path
) -> None:
    (plan, tracer, _), (files, arrays) = whole, weights
    zeros = {}
    for group, file in files.items():
        zeros[group] = tmp_path / file.name
        write_arrays(
            zeros[group], {name.split(".", 1)[1]: 0 * a for name, a in arrays.items() if name.startswith(f"{group}.")}
        )
    sizes, lowered = [], []
    for name, given, hollow in (("built", files, False), ("estimated", zeros, True)):
        target = Squeezing()
        artifacts = Artifacts(
            TargetChoice(target.name, target, Settings()), tmp_path / name, lambda stage, done, total: None
        )
        artifacts.bake([plan], tracer.graphs, given, hollow)
        assert len(artifacts.record(list(tracer.graphs.values())).artifacts) == len(list((tmp_path / name).iterdir()))
        sizes.append(sum(file.stat().st_size for file in (tmp_path / name).iterdir()))
        lowered.append(target.lowered)
    assert sizes[1] == pytest.approx(sizes[0], rel=0.01)
    assert lowered[1] < lowered[0]
