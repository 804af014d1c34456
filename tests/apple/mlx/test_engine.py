# SPDX-License-Identifier: Apache-2.0
"""The engine in the core, by its table: results, memory, what it refuses."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from bespoke import plugins
from bespoke.graph.trace import Graph
from bespoke_plugins.targets.mlx import MlxOptions
from bespoke_plugins.targets.mlx.records import VERSION, read
from bespoke_plugins.targets.mlx.vendor import load_mlx
from tests.apple.mlx.engine import NOT_BUILT, Engine, EngineError, engine_library, places
from tests.apple.mlx.graphs import METHODS, MODELS, graphs_of

LIBRARY = engine_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason=NOT_BUILT)
OTHER_SIGNATURE = 3
load_mlx()


@pytest.fixture(scope="module")
def engine() -> Engine:
    assert LIBRARY is not None
    return Engine(LIBRARY)


def lowered(graph: Graph, folder: Path, **options: object) -> tuple[bytes, int]:
    artifact = plugins.get("target", "mlx").lower(graph, folder, MlxOptions(**options))  # type: ignore[arg-type]
    return artifact.path.read_bytes(), artifact.engine_bytes


def operands_of(graph: Graph) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for spec in graph.inputs:
        if spec.dtype == "float32":
            made.append(torch.rand(spec.shape, generator=generator) + 0.1)
        elif spec.dtype == "float16":  # scales so small that no softmax saturates: rounding would decide what comes out
            made.append(((torch.rand(spec.shape, generator=generator) - 0.5) * 0.04).half())
        elif spec.dtype == "uint8":
            made.append(torch.randint(0, 256, spec.shape, generator=generator, dtype=torch.uint8))
        else:
            # Positions that are seen, of a block's vjp too, whose operands have no names; else tokens, places.
            seen = 64 if "window" in spec.name or spec.name == "operand_4" else 0
            made.append(torch.full(spec.shape, seen, dtype=getattr(torch, spec.dtype)))
    return made


def check(engine: Engine, graph: Graph, folder: Path, **options: object) -> None:
    data, declared = lowered(graph, folder, **options)
    operands = operands_of(graph)
    expected = graph.module(*operands)
    moved = graph.module(
        *(by_an_ulp(operand) for operand in operands)
    )  # what rounding alone does: some gradients nearly cancel
    results = [np.zeros(tuple(value.shape), dtype=value.numpy().dtype) for value in expected]
    arrays = [operand.numpy() for operand in operands]
    program = engine.open(data, arrays, results)
    for _ in range(2):  # the second one finds what the first left
        peak = engine.run(program, arrays, results)
        assert 0 < peak <= declared, graph.name
    engine.close(program)
    for got, want, near in zip(results, expected, moved, strict=True):
        largest, rounding = float(want.double().abs().max()), float((near - want).double().abs().max())
        assert float(np.abs(got - want.numpy()).max()) <= max(1e-5 * largest, 16 * rounding), graph.name


def by_an_ulp(operand: torch.Tensor) -> torch.Tensor:
    if operand.dtype != torch.float32:
        return operand
    signs = torch.randint(0, 2, operand.shape, generator=torch.Generator().manual_seed(2)) * 2.0 - 1
    return operand * (1 + signs * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("form", ["decode", "fused"])
def test_a_graph_of_each_name_is_run_within_what_was_declared(engine: Engine, form: str, tmp_path: Path) -> None:
    for graph in {graph.name: graph for graph in graphs_of("mesp", "plain")}.values():
        check(engine, graph, tmp_path, int4=form)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["decode", "fused"])
@pytest.mark.parametrize("method", METHODS)
def test_all_graphs_are_run_within_what_was_declared(engine: Engine, method: str, form: str, tmp_path: Path) -> None:
    for model in MODELS:
        for graph in graphs_of(method, model):
            check(engine, graph, tmp_path, int4=form)


@pytest.fixture(scope="module")
def adamw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    graph = next(graph for graph in graphs_of("mesp", "plain") if graph.name == "adamw")
    return lowered(graph, tmp_path_factory.mktemp("adamw"))[0]


def test_another_version_is_named(engine: Engine, adamw: bytes) -> None:
    other = struct.pack("<Q", 6) + b"0.32.4" + adamw[8 + len(VERSION) :]
    with pytest.raises(EngineError, match=rf"a program of MLX 0\.32\.4 for this MLX {VERSION}"):
        engine.open(other, *places(read(adamw)))
    with pytest.raises(EngineError, match="no file of MLX"):
        engine.open(b"nothing of the kind", *places(read(adamw)))


def test_other_operands_and_results_are_refused(engine: Engine, adamw: bytes) -> None:
    operands, results = places(read(adamw))
    with pytest.raises(EngineError, match="other operands") as caught:
        engine.open(adamw, operands[:-1], results)
    assert caught.value.status == OTHER_SIGNATURE
    with pytest.raises(EngineError, match=r"a result of \(") as caught:
        engine.open(adamw, operands, [results[0][:-1], *results[1:]])
    assert caught.value.status == OTHER_SIGNATURE
    with pytest.raises(EngineError, match="3 results") as caught:
        engine.open(adamw, operands, results[:-1])
    assert caught.value.status == OTHER_SIGNATURE


def test_a_program_for_the_graphics_card_is_refused_where_there_is_none(engine: Engine, tmp_path: Path) -> None:
    import mlx.core as mx

    if mx.metal.is_available():
        pytest.skip("here is one")
    graph = graphs_of("mesp", "plain")[0]
    data, _ = lowered(graph, tmp_path, device="gpu", background=False)
    with pytest.raises(EngineError):
        engine.open(data, *places(read(data)))


def test_the_core_is_not_linked_to_mlx() -> None:
    assert LIBRARY is not None
    core = LIBRARY.parent / "libbespoke_core.so"
    needed = subprocess.run(["readelf", "-d", core], capture_output=True, text=True, check=True).stdout
    assert "mlx" not in needed
    assert "libmlx" in subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
