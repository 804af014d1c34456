# SPDX-License-Identifier: Apache-2.0
"""Backward functions derived by autodiff: right, and the same object for the same request, so that they are traced once."""

from __future__ import annotations

from typing import Any

import torch

from bespoke.config import Lora
from bespoke.graph.trace import TensorSpec, Tracer
from bespoke.graph.tree import flatten
from bespoke.methods.vjp import vjp
from bespoke.model.spec import ModelSpec


def function(x: torch.Tensor, weights: dict[str, torch.Tensor], scale: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ weights["a"]) * weights["b"] * scale


def operands() -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, a, b = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in ((5, 4), (4, 3), (3,)))
    return x, {"a": a, "b": b}, torch.tensor(2.0, dtype=torch.float64)


def test_gradients_have_the_form_of_the_arguments_asked_for() -> None:
    x, weights, scale = operands()
    dy = torch.ones(5, 3, dtype=torch.float64)
    dweights, dx = vjp(function, (1, 0))(x, weights, scale, dy)
    leaves = [x, *weights.values()]
    for leaf in leaves:
        leaf.requires_grad_()
    expected = torch.autograd.grad(function(x, weights, scale), leaves, dy)
    torch.testing.assert_close([dx, dweights["a"], dweights["b"]], list(expected), rtol=1e-12, atol=1e-12)


def test_the_same_request_is_the_same_function() -> None:
    assert vjp(function, (0,)) is vjp(function, (0,))
    assert vjp(function, (0,)) is not vjp(function, (1,))
    assert vjp(function, (0,)).__name__ == "function_backward"


def test_models_that_differ_in_depth_alone_share_their_graphs(llama: ModelSpec) -> None:
    shallow = ModelSpec(llama.config.model_copy(update={"num_layers": 1}), llama.lora)
    other = ModelSpec(llama.config, Lora(rank=2, alpha=3.0))
    tracer = Tracer()

    def trace(model: ModelSpec) -> Any:
        norm = TensorSpec("", (64,), "float32")
        x = TensorSpec("", (4, 64), "float32")
        leaves, form = flatten((x, norm, x))
        return tracer.trace(vjp(model.final_norm, (0,)), leaves, form, {})[0]

    assert trace(llama) is trace(shallow)
    assert len(tracer.traced) == 1
    trace(other)
    assert len(tracer.traced) == 2
