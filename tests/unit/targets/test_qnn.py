# SPDX-License-Identifier: Apache-2.0
"""What the NPU is given of a graph, without its compiler: the region around the products, and numbers that stay what they were."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke import Lora, Personalizer, Training, plugins
from bespoke.compiler.baking import quantized_operands
from bespoke.compiler.plan_request import training_request
from bespoke.compiler.planner import Planner
from bespoke.compiler.request import Method
from bespoke.errors import ConfigError, MissingDependency, Unsupported
from bespoke.graph.trace import Graph, Tracer
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from bespoke.ops import LINEAR_INT4, decode, embedding_int4, linear_int4
from bespoke.ops.dtypes import TORCH_DTYPES
from bespoke.plan.costs import TORCH_COSTS
from tests.support.models import tiny_config, tiny_model
from tests.unit.targets.programs import graphs_of, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch.qnn import compiler as compilers
from bespoke_plugins.targets.executorch.qnn.binary import Job, Refused
from bespoke_plugins.targets.executorch.qnn.compile import compile_region
from bespoke_plugins.targets.executorch.qnn.compiler import Compiler, compiled
from bespoke_plugins.targets.executorch.qnn.dense import dense_graph
from bespoke_plugins.targets.executorch.qnn.int4 import Int4Weight, with_int4_products
from bespoke_plugins.targets.executorch.qnn.region import PRODUCTS, Region, region_of
from bespoke_plugins.targets.executorch.qnn.sdk import LIBRARIES

UNLIMITED = 2**40  # window of attention
FAMILIES = ["plain", "normed"]


def by_name(method: str, model: str) -> dict[str, Graph]:
    return {graph.name: graph for graph in graphs_of(method, model)}


def weights_of(graph: Graph) -> dict[str, np.ndarray]:
    """Codes, scales and where columns begin, as a build would bake them."""
    rng, found = np.random.default_rng(1), {}
    for one in quantized_operands(graph):
        spec = graph.inputs[one.weight]
        codes = rng.integers(0, 256, spec.shape, np.uint8)
        found[spec.name] = codes if spec.dtype == "uint8" else ((rng.random(spec.shape) - 0.5) / 25).astype(np.float16)
        if one.column_start is not None:
            found[graph.inputs[one.column_start].name] = np.array(0, np.int64)
    return found


def cut(graph: Graph) -> tuple[torch.fx.GraphModule, Region | None]:
    module = dense_graph(graph, weights_of(graph)).module
    return module, region_of(module)


def names(nodes: Any) -> list[str]:
    return [str(node.target).split(".")[1] for node in nodes if node.op == "call_function" and "." in str(node.target)]


@pytest.mark.parametrize("model", FAMILIES)
def test_with_dense_weights_a_graph_computes_what_it_did(model: str) -> None:
    for name, graph in by_name("mezo", model).items():
        if name == "embed":
            continue
        baked = weights_of(graph)
        generator = torch.Generator().manual_seed(1)
        operands = []
        for spec in graph.inputs:
            if spec.name in baked:
                operands.append(torch.from_numpy(baked[spec.name]))
            elif TORCH_DTYPES[spec.dtype].is_floating_point:
                operands.append(torch.rand(spec.shape, generator=generator).to(TORCH_DTYPES[spec.dtype]))
            else:
                operands.append(
                    torch.full(spec.shape, UNLIMITED if spec.name == "window" else 0, dtype=TORCH_DTYPES[spec.dtype])
                )
        expected = graph.module(*operands)
        left = [operand for spec, operand in zip(graph.inputs, operands, strict=True) if spec.name not in baked]
        for got, wanted in zip(dense_graph(graph, baked).module(*left), expected, strict=True):
            assert torch.allclose(got, wanted, rtol=1e-4, atol=1e-4), name


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> list[Graph]:
    """Graphs of a model whose sizes are multiples of a group, as in real models."""
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 128,
    }
    folder, tracer, mezo = tmp_path_factory.mktemp("wide"), Tracer(), plugins.get("optimizer", "mezo")
    tiny_config("llama", num_hidden_layers=1, **sizes).save_pretrained(folder)
    training = Training(sequence_lengths=(16,), batch_size=1)
    request = training_request(Method("mezo", mezo, mezo.Options(), training), 16, 16, TORCH_COSTS, bakes=True)
    Planner(request, ModelSpec(read_config(folder), Lora(rank=2)), tracer).plan(None)
    return list(tracer.graphs.values())


def test_with_int4_weights_a_region_has_no_dense_one_and_computes_what_it_did(wide: list[Graph]) -> None:
    rewritten = 0
    for graph in wide:
        made = dense_graph(graph, weights_of(graph)) if graph.name != "embed" else None
        region = region_of(made.module) if made else None
        if made is None or region is None or not made.weights:
            continue
        grouped = pickle.loads(
            pickle.dumps(with_int4_products(region.module, made.weights))
        )  # as the compiler's process gets it
        generator = torch.Generator().manual_seed(1)
        operands = [torch.rand(node.meta["val"].shape, generator=generator) - 0.5 for node in region.inputs]
        for got, wanted in zip(grouped(*operands), region.module(*operands), strict=True):
            assert got.shape == wanted.shape
            assert torch.allclose(got, wanted, rtol=1e-5, atol=1e-5), graph.name
        constants = [getattr(grouped, str(node.target)) for node in grouped.graph.nodes if node.op == "get_attr"]
        assert {str(tensor.dtype) for tensor in constants if tensor.dim() > 1} == {"torch.int8"}, graph.name
        rewritten += len(made.weights)
    assert rewritten >= 8  # q, k, v, o, gate, up, down, and the head


def test_a_weight_of_other_sizes_stays_dense() -> None:
    made = dense_graph(graph := by_name("mezo", "plain")["attention_inputs"], weights_of(graph))
    region = region_of(made.module)
    assert region is not None
    assert not any(weight.fits for weight in made.weights.values())
    assert names(with_int4_products(region.module, made.weights).graph.nodes) == names(region.module.graph.nodes)


def test_an_int4_weight_is_cut_at_groups_and_a_group_without_a_scale_has_one_that_a_compiler_takes() -> None:
    rng = np.random.default_rng(1)
    codes = torch.from_numpy(rng.integers(0, 256, (5, 3 * 16), np.uint8))
    scales = torch.from_numpy(((rng.random((5, 3)) - 0.5) / 25).astype(np.float16))
    scales[2, 1] = 0
    whole = decode(codes, scales, 96, torch.float32)
    for first, columns in ((0, 96), (32, 64), (32, 32), (64, 20)):
        weight = Int4Weight.of(codes, scales, first, columns)
        dense = (weight.codes.view(5, -1, 32) * weight.scales[..., None]).flatten(1)[:, :columns]
        assert torch.equal(dense, whole[:, first : first + columns])
        assert weight.scales.all()
        assert not weight.fits  # five outputs


def test_products_whose_weights_stay_operands_stay_on_the_processor() -> None:
    """A graph with a look-up whose weights are not held, and a graph with some held weights."""
    rng = np.random.default_rng(1)
    codes = [torch.from_numpy(rng.integers(0, 256, (32, 16), np.uint8)) for _ in range(3)]
    scales = [torch.from_numpy(((rng.random((32, 1)) - 0.5) / 25).astype(np.float16)) for _ in range(3)]
    given = [torch.arange(4), *(part for pair in zip(codes, scales, strict=True) for part in pair)]

    def mixed(tokens: Any, *parts: Any) -> Any:
        x = embedding_int4(tokens, parts[0], parts[1], 32)
        return linear_int4(linear_int4(x, parts[2], parts[3], None, 32), parts[4], parts[5], None, 32)

    graph = traced(mixed, given)
    (expected,) = graph.module(*given)
    for held in (0, 2):
        names = {spec.name: tensor.numpy() for spec, tensor in zip(graph.inputs[3 : 3 + held], given[3:], strict=False)}
        made = dense_graph(graph, names)
        (got,) = made.module(*given[:3], *given[3 + held :])
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6)
        assert len(made.weights) == held // 2
        region = region_of(made.module)
        assert (region is None) == (not held)
        left = [node for node in made.module.graph.nodes if str(node.target) == LINEAR_INT4]
        assert len(left) == 2 - held // 2
        assert region is None or not {*left} & region.nodes


@pytest.mark.parametrize("model", FAMILIES)
def test_the_region_has_every_product_that_leads_to_no_norm_and_is_entered_and_left_once(model: str) -> None:
    seen = set()
    for name, graph in by_name("mezo", model).items():
        if name == "embed":
            continue
        module, region = cut(graph)
        products = [node for node in module.graph.nodes if str(node.target) in PRODUCTS]
        assert (region is None) == (not products), name
        if region is None:
            continue
        seen.add(name)
        assert any(node in region.nodes for node in products)
        assert not region.nodes & region.after
        assert not any(user in region.nodes for node in region.after for user in node.users), name
        for node in (*region.inputs, *region.outputs):
            assert node.meta["val"].dtype is torch.float32
    assert {"attention_inputs", "attention_tile", "attention_output", "head_chunk"} <= seen


def test_norms_the_residual_stream_masks_and_the_heads_log_sum_exp_stay_on_the_processor() -> None:
    graphs = by_name("mezo", "plain")
    _, inputs = cut(graphs["attention_inputs"])
    _, output = cut(graphs["attention_output"])
    _, tile = cut(graphs["attention_tile"])
    _, head = cut(graphs["head_chunk"])
    assert inputs is not None
    assert output is not None
    assert tile is not None
    assert head is not None
    assert {"rsqrt", "mean"}.isdisjoint(names(inputs.nodes))
    assert names(output.after) == ["add"]  # x + what attention gives
    assert {"le", "gt", "where", "arange"}.isdisjoint(names(tile.nodes))
    assert "_softmax" in names(tile.nodes)
    assert set(names(head.nodes)) == {"mm"}
    assert {"exp", "max", "gather"} <= set(names(head.after))


def test_a_backward_pass_is_refused_by_its_operator() -> None:
    (graph,) = [graph for graph in graphs_of("mesp", "plain") if "head_chunk_gradient" in str(graph.module.graph)]
    with pytest.raises(
        Unsupported, match=r"'head_chunk', operator bespoke\.head_chunk_gradient_int4.*backward pass.*mezo"
    ):
        dense_graph(graph, weights_of(graph))


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    _, region = cut(by_name("mezo", "plain")["head_chunk"])
    assert region is not None
    monkeypatch.delenv("QNN_SDK_ROOT", raising=False)
    with pytest.raises(MissingDependency, match=r"no QNN_SDK_ROOT.*Install it from Qualcomm"):
        compile_region(region, "SM8650", "head_chunk")
    monkeypatch.setenv("QNN_SDK_ROOT", str(tmp_path))
    with pytest.raises(MissingDependency, match=r"without lib/x86_64-linux-clang/libQnnHtp\.so"):
        compile_region(region, "SM8650", "head_chunk")


def refused_at_once(model: Path, folder: Path, **options: str) -> list[str]:
    """What an estimate and a build say, which have converted no weights and written nothing."""
    asked = Personalizer(
        model,
        {"mezo": {"epsilon": 1e-2}},
        {"executorch": {"delegate": "qnn", **options}},
        licence="MIT",
        data=None,
        lora=Lora(rank=2),
        training=Training(sequence_lengths=(16,)),
    )
    (model / "model.safetensors").unlink(missing_ok=True)  # who would read them would not find them
    stages: list[str] = []
    said = []
    for ask in (
        asked.estimate,
        lambda: asked.build(folder / "bundle", lambda stage, done, total: stages.append(stage)),
    ):
        with pytest.raises((MissingDependency, ConfigError)) as found:
            ask()
        said.append(str(found.value))
    assert not stages
    assert not (folder / "bundle").exists()
    return said


def test_an_sdk_that_is_missing_and_an_soc_that_is_not_known_are_said_before_anything_is_converted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tiny_model("llama", tmp_path / "model")
    monkeypatch.delenv("QNN_SDK_ROOT", raising=False)
    for text in refused_at_once(model, tmp_path):
        assert "delegate = 'qnn': got no QNN_SDK_ROOT; expected Qualcomm's AI Engine Direct SDK" in text
        assert "Install it from Qualcomm" in text
    sdk_of_empty_libraries(monkeypatch, tmp_path)
    for text in refused_at_once(model, tmp_path, soc="SM1"):
        assert "option soc: got 'SM1'; expected one of" in text
        assert "SM8650" in text
        assert "Name the SoC of the phone" in text


@pytest.mark.slow  # the vendor's compiler is imported, in a process of its own
def test_an_sdk_that_compiles_nothing_is_said_before_anything_is_converted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tiny_model("llama", tmp_path / "model")
    folder = sdk_of_empty_libraries(monkeypatch, tmp_path)
    for text in refused_at_once(model, tmp_path):
        assert f"Qualcomm's SDK at QNN_SDK_ROOT='{folder}': got no program of one product for SM8650" in text
        assert "Failed to initialize QNN backend" in text
        assert "expected Qualcomm's AI Engine Direct SDK (QAIRT 2.37)" in text


def sdk_of_empty_libraries(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    library = folder / "sdk" / LIBRARIES / "libQnnHtp.so"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setenv("QNN_SDK_ROOT", str(folder / "sdk"))
    return folder / "sdk"


def test_the_end_of_the_compilers_process_is_a_refusal_and_the_next_job_has_a_new_one() -> None:
    compiler = Compiler.instance()
    compiler._process.kill()
    refused = compiler.run(Job(torch.fx.GraphModule({}, torch.fx.Graph()), (), "SM8650"))
    assert isinstance(refused, Refused)
    assert "ended with status -9" in str(refused)
    following = Compiler.instance()
    following._process.kill()
    assert following is not compiler


EMPTY = Job(torch.fx.GraphModule({}, torch.fx.Graph()), (), "SM8650")


# A process without a vendor, whose answer is the name of the SoC.
ANSWERING = """
import pickle, sys
from bespoke_plugins.targets.executorch.qnn.compiler import _received, _send
while message := _received(sys.stdin.buffer):
    _send(sys.stdout.buffer, pickle.dumps(pickle.loads(message).soc))
"""


@pytest.fixture
def _answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    started = compilers.subprocess.Popen
    monkeypatch.setattr(
        compilers.subprocess, "Popen", lambda command, **given: started([sys.executable, "-c", ANSWERING], **given)
    )
    Compiler.instance.cache_clear()
    yield
    Compiler.instance().end()


@pytest.mark.usefixtures("_answering")
def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(stream: Any) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(compilers, "_received", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compiled(replace(EMPTY, soc="first"))
    assert compiled(replace(EMPTY, soc="second")) == "second"


@pytest.mark.slow
@pytest.mark.usefixtures("_answering")
def test_jobs_of_two_threads_get_their_own_answers() -> None:
    names = [f"SM{number}" for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda name: compiled(replace(EMPTY, soc=name)), names)) == names


@pytest.mark.usefixtures("_answering")
def test_a_job_finds_a_new_process_where_the_last_one_has_ended() -> None:
    assert compiled(EMPTY) == "SM8650"
    Compiler.instance()._process.kill()
    assert compiled(EMPTY) == "SM8650"
