# SPDX-License-Identifier: Apache-2.0
"""Files of MLX, record by record: what is written is what was read, whatever MLX called its arrays; what is unknown is named."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bespoke.errors import Unsupported
from bespoke.graph.trace import Graph
from bespoke_plugins.targets.mlx.records import STATES, VERSION, Given, Made, Program, read, version_of, write
from bespoke_plugins.targets.mlx.vendor import load_mlx
from tests.apple.mlx.graphs import METHODS, MODELS, graphs_for_answers, graphs_of
from tests.apple.mlx.operators import CASES, INT4, graph_of

load_mlx()


from bespoke_plugins.targets.mlx.lowering import exported  # noqa: E402


@pytest.fixture(scope="module")
def adamw() -> Program:
    return exported(next(graph for graph in graphs_of("mesp", "plain") if graph.name == "adamw"), "decode")


def of_each_name(graphs: tuple[Graph, ...]) -> list[Graph]:
    return list({graph.name: graph for graph in graphs}.values())


def check(graph: Graph, form: str) -> set[str]:
    program = exported(graph, form)  # type: ignore[arg-type]
    cpu, gpu = write(program), write(program, "gpu")
    assert cpu == write(exported(graph, form))  # type: ignore[arg-type]
    made = [record for record in program.tape if isinstance(record, Made)]
    assert read(gpu).device == ("gpu" if made else "cpu")  # a copy of an operand has no record of its own
    assert len(gpu) == len(cpu)
    assert sum(one != other for one, other in zip(cpu, gpu, strict=True)) == len(made)  # one byte of each
    assert write(read(gpu)) == cpu
    return {record.primitive for record in made}


@pytest.mark.parametrize("form", ["decode", "fused"])
def test_devices_are_all_that_a_file_for_the_graphics_card_has_of_its_own(form: str) -> None:
    for graph in of_each_name(graphs_of("mesp", "plain")):
        check(graph, form)


@pytest.mark.slow
def test_all_graphs_are_taken_apart_and_put_together_and_need_each_primitive_that_is_known(tmp_path: Path) -> None:
    graphs = [graph for model in MODELS for graph in graphs_for_answers(model)]
    graphs += [graph for method in METHODS for model in MODELS for graph in graphs_of(method, model)]
    graphs += [graph_of(*case) for cases in (*CASES.values(), *INT4.values()) for case in cases]
    met: set[str] = set()
    for graph in {graph.key: graph for graph in graphs}.values():
        met |= check(graph, "decode") | check(graph, "fused")
    assert met == set(STATES)


def test_arrays_are_numbered_as_they_come(adamw: Program) -> None:
    program = read(write(adamw))
    assert [id for id, _ in program.operands] == list(range(1, len(program.operands) + 1))
    assert program.results[0] == len(program.operands) + 1


def test_mlx_runs_what_was_written(adamw: Program, tmp_path: Path) -> None:
    import mlx.core as mx

    path = tmp_path / "adamw.mlxfn"
    path.write_bytes(write(adamw))
    results = mx.import_function(str(path))(*[mx.ones(array.shape, dtype=mx.float32) for _, array in adamw.operands])
    assert len(results) == 3  # parameter and two moments, of one shape
    assert {tuple(result.shape) for result in results} == {max((array.shape for _, array in adamw.operands), key=len)}


def test_other_results_may_be_asked_for(adamw: Program) -> None:
    steps = tuple(record.id for record in adamw.tape if isinstance(record, Made))
    assert len(read(write(adamw, results=steps)).results) == len(steps) > len(adamw.results)


# ---- what is refused -----------------------------------------------------------------------------------------------------------


def refused(data: bytes) -> Unsupported:
    with pytest.raises(Unsupported) as caught:
        read(data)
    return caught.value


def test_an_unknown_primitive_is_named(adamw: Program) -> None:
    error = refused(write(adamw).replace(b"Multiply", b"Multiplx", 1))
    assert error.subject.startswith("MLX file, byte ")
    assert error.got == "the primitive 'Multiplx'"
    assert "Multiply" in error.expected
    assert error.next_step == f"Compile with mlx {VERSION}: pip install 'bespoke-sdk[mlx]'"


def test_another_version_is_named(adamw: Program) -> None:
    data = write(adamw)
    other = struct.pack("<Q", 6) + b"0.32.4" + data[8 + len(VERSION) :]
    assert version_of(other) == "0.32.4"
    assert refused(other).got == "MLX 0.32.4"
    assert version_of(b"no file of MLX at all") is None
    assert refused(b"no file of MLX at all").got == "no version"


@pytest.mark.parametrize("device", [2, -1])
def test_an_unknown_device_is_refused(adamw: Program, device: int) -> None:
    data = write(adamw)
    place = data.index(b"Multiply") - 8 - 8  # position of the device, before its index and the length of the name
    assert f"device {device}" in refused(data[:place] + struct.pack("<i", device) + data[place + 4 :]).got


def test_records_for_two_devices_are_refused(adamw: Program) -> None:
    data = write(adamw)
    place = data.index(b"Multiply") - 8 - 8
    assert refused(data[:place] + struct.pack("<i", 1) + data[place + 4 :]).got == "records for several devices"


def test_a_file_is_read_to_its_last_byte(adamw: Program) -> None:
    data = write(adamw)
    assert "1 bytes behind" in refused(data + b"\0").got
    for size in range(0, len(data), 7):
        refused(data[:size])


def test_a_constant_has_its_bytes_where_it_is_met_first() -> None:
    program = exported(graph_of(*CASES["aten.mul.Scalar"][0]), "decode")
    constants = [record for record in program.tape if isinstance(record, Given) and record.constant]
    assert [struct.unpack("<f", record.data)[0] for record in constants] == [pytest.approx(-0.3)]
