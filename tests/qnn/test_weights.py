# SPDX-License-Identifier: Apache-2.0
"""Ways of giving the NPU the int4 weights of a product, each compiled and run in the emulator: which it takes, how large and how
exact they are. The first and the last are what the target offers; the others say why not they."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from tests.qnn import emulator
from tests.support.checks import record_check

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch.qnn.int4 import Int4Weight, with_int4_products

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(emulator.missing() is not None, reason=f"the NPU's emulator: {emulator.missing()}"),
]

ROWS, OUTPUTS, INPUTS, GROUP = 64, 896, 896, 32  # sizes of Qwen2.5-0.5B
Weights = tuple[torch.Tensor, torch.Tensor]  # codes (O, I) from -8 to 7, scales (O, I / 32) of both signs, in fp32


def int4(outputs: int = OUTPUTS, inputs: int = INPUTS) -> Weights:
    groups = torch.randn(outputs, inputs // GROUP, GROUP, generator=torch.Generator().manual_seed(1)) / 20
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))[..., 0]
    scales = (largest / -8).half().float()
    return (groups / scales[..., None]).round().clamp(-8, 7).flatten(1), scales


def dense(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return codes * scales.repeat_interleave(GROUP, 1)


class Way(torch.nn.Module):
    """`product(x)` with tensors that are held."""

    def __init__(self, product: Callable[..., torch.Tensor], **held: torch.Tensor) -> None:
        super().__init__()
        self.product = product
        self.names = tuple(held)
        for name, tensor in held.items():
            self.register_buffer(name, tensor.contiguous())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x, *[getattr(self, name) for name in self.names])


def per_channel(most: int, codes: torch.Tensor, scales: torch.Tensor) -> dict[str, torch.Tensor]:
    """Rounded anew, with one scale an output."""
    weight = dense(codes, scales)
    scale = weight.abs().amax(1) / most
    rounded = (weight / scale[:, None]).round().to(torch.int8)
    return {"codes": rounded, "scale": scale, "zero": torch.zeros(OUTPUTS, dtype=torch.int64)}


def of_channels(most: int, *held: torch.Tensor) -> torch.Tensor:
    codes, scale, zero = held
    return torch.ops.quantized_decomposed.dequantize_per_channel(codes, scale, zero, 0, -most, most, torch.int8)


def of_blocks(codes: torch.Tensor, scales: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    options = {"output_dtype": torch.float32}
    return torch.ops.torchao.dequantize_affine(codes, [1, GROUP], scales, zero, torch.int8, -8, 7, **options)


def in_groups(codes: torch.Tensor, scales: torch.Tensor, rows: int) -> torch.nn.Module:
    """What the target makes of a product with weights = "int4"."""
    graph = torch.fx.Graph()
    x, weight = graph.placeholder("x"), graph.get_attr("weight")
    x.meta["val"] = torch.zeros(rows, codes.shape[1])
    graph.output((graph.call_function(torch.ops.aten.mm.default, (x, weight)),))
    module = torch.fx.GraphModule({"weight": dense(codes, scales).t()}, graph)
    return with_int4_products(module, {"weight": Int4Weight(codes.to(torch.int8), scales, codes.shape[1])})


def ways(codes: torch.Tensor, scales: torch.Tensor) -> dict[str, torch.nn.Module]:
    block = {"codes": codes.to(torch.int8), "scales": scales, "zero": torch.zeros(scales.shape, dtype=torch.int32)}
    return {
        "fp16": Way(lambda x, w: x @ w, w=dense(codes, scales).t()),
        "int8, a scale for an output": Way(
            lambda x, *w: linear(x, of_channels(127, *w)), **per_channel(127, codes, scales)
        ),
        "int4, a scale for an output": Way(
            lambda x, *w: linear(x, of_channels(7, *w)), **per_channel(7, codes, scales)
        ),
        "int8 in a matrix product": Way(lambda x, *w: x @ of_channels(127, *w).t(), **per_channel(127, codes, scales)),
        "int4, a scale for a block": Way(lambda x, *w: linear(x, of_blocks(*w)), **block),
        "int4, a group for a group": in_groups(codes, scales, ROWS),
    }


@pytest.mark.parametrize(
    ("way", "bytes_of_a_weight", "error"),
    [
        ("fp16", 2.1, 1e-3),
        ("int8, a scale for an output", 1.1, 1e-2),
        ("int4, a scale for an output", 0.65, 0.2),
        ("int4, a group for a group", 0.75, 1e-3),
    ],
)
def test_a_product_is_as_large_and_as_exact_as_its_weights(way: str, bytes_of_a_weight: float, error: float) -> None:
    """Off by what share of the product's norm, against fp64 with the int4 weights."""
    weights = int4()
    size, found = tried(ways(*weights)[way], weights, ROWS)
    figures = {"bytes a weight": size / OUTPUTS / INPUTS, "relative error": found}
    record_check(f"a product of the NPU with weights in {way}, {ROWS} x {INPUTS} x {OUTPUTS}", figures)
    assert figures["bytes a weight"] <= bytes_of_a_weight
    assert figures["relative error"] <= error
    assert figures["relative error"] > error / 10


@pytest.mark.parametrize(("outputs", "inputs"), [(32, 32), (128, 896), (896, 128), (64, 1024)])
@pytest.mark.parametrize("rows", [1, 5, 130])
def test_groups_are_exact_for_any_number_of_rows(outputs: int, inputs: int, rows: int) -> None:
    """Sizes that are no multiples of 32 came out wrong, and are not given to the NPU so."""
    weights = int4(outputs, inputs)
    _, error = tried(in_groups(*weights, rows), weights, rows)
    assert error <= 1e-3


@pytest.mark.parametrize("way", ["int8 in a matrix product", "int4, a scale for a block"])
def test_what_the_vendors_compiler_does_not_take(way: str) -> None:
    """A test that fails because it compiles is good news: see which is smaller and as exact."""
    with pytest.raises((AssertionError, RuntimeError), match=r"Failed to generate|not supported in Qnn"):
        lowered(ways(*int4())[way], torch.zeros(ROWS, INPUTS))


def tried(way: torch.nn.Module, weights: Weights, rows: int) -> tuple[int, float]:
    """Bytes of the program, and the error of its product."""
    x = torch.randn(rows, weights[0].shape[1], generator=torch.Generator().manual_seed(2))
    exact = x.double() @ dense(*weights).double().t()
    program, delegates = lowered(way, x)
    assert delegates == 1
    (got,) = program_run(program, x)
    return len(program), float((got - exact).norm() / exact.norm())


def lowered(way: torch.nn.Module, x: torch.Tensor) -> tuple[bytes, int]:
    """The program, and of how many delegates it is, with nothing beside them."""
    import torchao.quantization.pt2e  # noqa: F401  (registers operators)
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
        to_edge_transform_and_lower_to_qnn,
    )

    options = generate_htp_compiler_spec(use_fp16=True)
    specs = generate_qnn_executorch_compiler_spec(soc_model=QcomChipset["SM8650"], backend_options=options)
    edge = to_edge_transform_and_lower_to_qnn(way.eval(), (x,), specs)
    nodes = edge.exported_program().graph.nodes
    calls = [node for node in nodes if node.op == "call_function" and "getitem" not in str(node.target)]
    assert all("executorch_call_delegate" in str(node.target) for node in calls)
    return bytes(edge.to_executorch().buffer), len(calls)


def program_run(program: bytes, x: torch.Tensor) -> list[Any]:
    from executorch.extension.pybindings import portable_lib

    results: list[Any] = portable_lib._load_for_executorch_from_buffer(program).run_method("forward", (x,))
    return results
