# SPDX-License-Identifier: Apache-2.0
"""Products that XNNPACK computes of activations in int8 and int4 weights: what they are, which graphs have them, who is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke import Personalizer, Training, plugins
from bespoke.contracts import Baked, Settings
from bespoke.errors import ConfigError, Unsupported
from bespoke.graph.trace import Graph
from bespoke.model.quantize import dequantize, quantize
from bespoke.ops import embedding_int4, linear_int4
from bespoke.testing import check_target
from tests.unit.targets.programs import graphs_of, kernels_of, run, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch import vendor
from bespoke_plugins.targets.executorch.program import compile_graph
from bespoke_plugins.targets.executorch.qb4w.lowering import Int4Lowering, takes

pytestmark = pytest.mark.xdist_group("executorch")
INT8 = {"executorch": {"products": "xnnpack_qb4w"}}
ROWS, OUT = 5, 40


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    vendor.load_executorch()


def rounded_product(x: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """By XNNPACK's formulas: each row of x is int8 with a scale and a zero point of its own, scales of weights are bf16.

    In a group with a negative scale a step of it is taken off each weight, and multiplied with x as it is."""
    bf16 = torch.from_numpy(scales.astype(np.float32)).bfloat16().float().numpy()
    steps = np.repeat(np.maximum(-bf16, 0), 32, axis=1).astype(np.float64)
    w = dequantize(codes, bf16, codes.shape[1] * 2).astype(np.float64) - steps
    x = np.pad(x, ((0, 0), (0, w.shape[1] - x.shape[1]))).astype(np.float64)
    low, high = np.minimum(x.min(1, keepdims=True), 0), np.maximum(x.max(1, keepdims=True), 0)
    scale = 255 / (high - low)
    below, above = -128 + low * scale, 127 + high * scale
    zero = np.rint(np.clip(np.where(below + above > 0, -128 - low * scale, 127 - high * scale), -128, 127))
    return ((np.clip(np.rint(x * scale) + zero, -128, 127) - zero) / scale) @ w.T + x @ steps.T


def weights_of(columns: int, signs: str) -> tuple[np.ndarray, np.ndarray]:
    """Any codes, and scales of these signs."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, (OUT, -(-columns // 32) * 16), np.uint8)
    if columns % 32:
        codes[:, -(32 - columns % 32) // 2 :] = 0x88  # the padding, which decodes to 0
    drawn = rng.uniform(0.01, 0.1, (OUT, codes.shape[1] // 16))
    sign = {"positive": 1, "negative": -1}.get(signs, rng.integers(-1, 2, drawn.shape))
    return codes, (sign * drawn).astype(np.float16)


@pytest.mark.parametrize("signs", ["positive", "negative", "of all signs, and zero"])
@pytest.mark.parametrize(("columns", "start", "used"), [(96, None, 96), (44, None, 44), (128, 64, 64)])
def test_a_product_is_what_xnnpack_says_it_computes(columns: int, start: int | None, used: int, signs: str) -> None:
    """Products with whole weights, with rows that end within a group, and with some columns."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, used), dtype=np.float32)
    codes, scales = weights_of(columns, signs)
    given = [torch.from_numpy(x), torch.from_numpy(codes), torch.from_numpy(scales)]
    held = {"codes": codes, "scales": scales}

    def cut(x: Any, codes: Any, scales: Any, first: Any) -> Any:
        return linear_int4(x, codes, scales, first, used)

    def whole(x: Any, codes: Any, scales: Any) -> Any:
        return linear_int4(x, codes, scales, None, used)

    if start is None:
        graph = traced(whole, given)
    else:
        graph = traced(cut, [*given, torch.tensor(start)])
        held["first"] = np.array(start, np.int64)
    lowering = Int4Lowering(graph, held)
    compiled = compile_graph(graph, lowering)
    ((got,),) = run(compiled.data, given[:1])
    groups = slice((start or 0) // 32, None)
    expected = rounded_product(x, codes[:, (start or 0) // 2 :], scales[:, groups])
    exact = x.astype(np.float64) @ dequantize(codes, scales, columns)[:, start or 0 :].astype(np.float64).T
    assert np.abs(got.numpy() - expected).max() <= 2e-6 * np.abs(expected).max()
    assert 1e-3 < np.linalg.norm(got.numpy() - exact) / np.linalg.norm(exact) < 2e-2
    if signs == "positive":
        assert compiled.data.count(codes[0].tobytes() if start is None else codes[0, 32:].tobytes()) == 1
    assert not {name for name in kernels_of(compiled.data) if name.startswith("bespoke")}
    assert [weight.shape for weight in lowering.weights] == [(OUT, -(-used // 32) * 32)]


def test_a_graph_of_a_look_up_and_products_keeps_its_weights_as_operands(tmp_path: Path) -> None:
    """And where some of its products' weights are held, the others are computed as ever."""
    target: Any = plugins.get("target", "executorch")
    rng = np.random.default_rng(0)
    table, first, second = (quantize("w", rng.standard_normal((OUT, OUT), dtype=np.float32)) for _ in range(3))
    given = [torch.arange(ROWS), *(torch.from_numpy(part) for weight in (table, first, second) for part in weight)]

    def mixed(tokens: Any, *parts: Any) -> Any:
        x = linear_int4(embedding_int4(tokens, parts[0], parts[1], OUT), parts[2], parts[3], None, OUT)
        return linear_int4(x, parts[4], parts[5], None, OUT)

    graph = traced(mixed, given)
    assert not target.bakes(target.Options(products="xnnpack_qb4w"), graph)
    (expected,) = graph.module(*given)
    for held, tolerance in ((0, 1e-5), (2, 2e-2)):
        names = {spec.name: array for spec, array in zip(graph.inputs[3 : 3 + held], first, strict=False)}
        lowering = Int4Lowering(graph, names)
        compiled = compile_graph(graph, lowering)
        operands = [*given[:3], *given[3 + held :]]
        (tmp_path / "mixed.pte").write_bytes(compiled.data)
        program = target.open(tmp_path / "mixed.pte", target.Options())
        if program is not None:  # our operators are the core's
            (got,) = program(*operands)
            assert (got - expected).norm() <= tolerance * expected.norm()
        assert len(lowering.weights) == held // 2
        assert "bespoke::linear_int4.out" in kernels_of(compiled.data)


def test_graphs_with_products_hold_their_weights_and_look_ups_and_the_heads_loss_do_not() -> None:
    target: Any = plugins.get("target", "executorch")
    graphs = {graph.name: graph for graph in graphs_of("mezo", "plain")}
    assert {name for name, graph in graphs.items() if takes(graph)} >= {
        "attention_inputs",
        "attention_output",
        "mlp_slice",
    }
    for name in ("embed", "head_chunk"):
        assert not target.bakes(target.Options(products="xnnpack_qb4w"), graphs[name])
        assert not target.bakes(target.Options(), graphs[name])
    assert target.bakes(target.Options(products="xnnpack_qb4w"))
    assert not target.bakes(target.Options())


def refused(folder: Path, optimizers: Any, targets: Any = INT8) -> str:
    with pytest.raises(ConfigError) as found:
        Personalizer(folder, optimizers, targets, training=Training(sequence_lengths=(8,)))
    return str(found.value)


@pytest.mark.parametrize("option", [("products", "xnnpack_qb4w"), ("delegate", "qnn")])
def test_a_method_with_a_backward_pass_is_refused_before_anything_is_read(
    option: tuple[str, str], tmp_path: Path
) -> None:
    name, value = option
    said = refused(tmp_path / "no model", ["mesp", "mebp"], {"executorch": {name: value}})
    assert said.count(f"{name} = '{value}' for a method with a backward pass") == 2
    assert "optimizers.mesp" in said
    assert f"Choose such a method, or leave out {name}" in said


@pytest.mark.parametrize(("method", "least"), [("mezo", 1e-2), ("prge", 1e-2), ("fzoo", 3e-2), ("hizoo", 3e-2)])
def test_an_epsilon_below_what_was_measured_is_refused(method: str, least: float, tmp_path: Path) -> None:
    said = refused(tmp_path, {method: {"epsilon": 0.9 * least}})
    assert (
        f"optimizers.{method}: got epsilon = {0.9 * least:g} with products = 'xnnpack_qb4w'; expected at least {least:g}"
        in said
    )
    Personalizer(tmp_path, {method: {"epsilon": least}}, INT8)
    Personalizer(tmp_path, {method: {"epsilon": 0.9 * least}}, "executorch")


class Curious:
    """A method of an epsilon whose estimates nobody has measured."""

    name = "curious"
    promises: Any = None

    class Options(Settings):
        epsilon: float = 1.0


class WithoutEpsilon(Curious):
    promises = "two_sided_loss_difference"

    class Options(Settings):
        """None."""


@pytest.mark.parametrize("method", [Curious(), WithoutEpsilon()])
@pytest.mark.parametrize("option", [{"products": "xnnpack_qb4w"}, {"delegate": "qnn"}])
def test_a_method_that_was_not_measured_is_refused(method: Any, option: dict[str, Any]) -> None:
    target: Any = plugins.get("target", "executorch")
    problem = target.refuses(target.Options(**option), method, method.Options())
    assert problem is not None
    assert problem.got.endswith(f"for a method that promises {method.promises or 'nothing'}")
    assert "one that was measured with it, which promises two_sided_loss_difference" in problem.expected
    assert target.refuses(target.Options(), method, method.Options()) is None


@pytest.mark.parametrize(("method", "least"), [("mezo", 1e-3), ("prge", 1e-3), ("fzoo", 1e-2), ("hizoo", 1e-2)])
def test_the_npu_takes_the_epsilons_that_its_emulator_ran(method: str, least: float, tmp_path: Path) -> None:
    npu = {"executorch": {"delegate": "qnn"}}
    Personalizer(tmp_path, {method: {"epsilon": least}}, npu)
    assert f"at least {least:g}: below it, fp16 was not seen" in refused(
        tmp_path, {method: {"epsilon": 0.9 * least}}, npu
    )


def test_the_npu_has_no_products_of_xnnpack(tmp_path: Path) -> None:
    both = {"executorch": {"products": "xnnpack_qb4w", "delegate": "qnn"}}
    assert "products = 'xnnpack_qb4w' is for delegate = 'xnnpack'" in refused(tmp_path, "mezo", both)


def backward(graph: Graph) -> bool:
    return "linear_int4_transposed" in str(graph.module.graph)


def test_a_graph_of_a_backward_pass_is_refused_by_its_operator(tmp_path: Path) -> None:
    """A method without a promise shows its backward pass only in its graphs."""
    target: Any = plugins.get("target", "executorch")
    graph = next(filter(backward, graphs_of("mesp", "plain")))
    with pytest.raises(
        Unsupported, match=r"operator bespoke\.linear_int4_transposed.*forward graphs.*products = 'xnnpack_qb4w'"
    ):
        target.lower(graph, tmp_path, target.Options(products="xnnpack_qb4w"), Baked("0" * 64, {}))


@pytest.mark.slow
def test_each_program_computes_what_was_traced_but_for_int8() -> None:
    target: Any = plugins.get("target", "executorch")
    options: Settings = target.Options(products="xnnpack_qb4w")
    report = check_target(target, options, optimizers=["mezo", "prge"], tolerance=4e-2)
    assert report.opened == report.lowered > 100
