# SPDX-License-Identifier: Apache-2.0
"""A trained model whose products with quantized weights are computed by XNNPACK's formulas (those that tests/unit/targets/
test_int8_products.py holds XNNPACK to), and what that does to the estimates of zeroth-order methods.

    two-sided (mezo, prge)  g   = (L(theta + eps z) - L(theta - eps z)) / (2 eps)
    one-sided (fzoo)        g_i = (L(theta + eps u_i) - L(theta)) / (eps sigma), sigma the deviation of L(theta + eps u_1 .. u_N),
                            but no less than what the target rounds of a loss
    curvature (hizoo)       c   = |L(theta + eps z) + L(theta - eps z) - 2 L(theta)| / (2 eps^2), with its h at 1

z is normal, u Rademacher. A step has N draws at one batch, so that what is wrong with its L(theta) is in all of its g_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from bespoke.model.quantize import dequantize, quantize

Products = Literal["fp32", "bf16 scales", "int8"]
RANK, SCALE = 4, 2.0
B_SIZE = 0.02  # size of B's elements in a trained adapter
QUERIES = 8  # draws of a step, fzoo's default


class Linear(torch.nn.Module):
    """The frozen weight in int4, and an adapter."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        codes, scales = quantize("w", weight.detach().numpy())
        rounded = torch.from_numpy(scales.astype(np.float32)).bfloat16().float().numpy()
        exact, coarse = (torch.from_numpy(dequantize(codes, s, weight.shape[1])) for s in (scales, rounded))
        self.weights = {"fp32": exact, "bf16 scales": coarse, "int8": coarse}
        self.bias = bias
        self.products: Products = "fp32"
        self.a: torch.Tensor
        self.b: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        read = rounded_rows(x) if self.products == "int8" else x
        y = read @ self.weights[self.products].t() + SCALE * (x @ self.a.t()) @ self.b.t()
        return y if self.bias is None else y + self.bias


def rounded_rows(x: torch.Tensor) -> torch.Tensor:
    """Each row as int8 with a scale and a zero point of its own, and back."""
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = 255 / (high - low).clamp(min=1e-30)
    below, above = -128 + low * scale, 127 + high * scale
    zero = torch.where(below + above > 0, -128 - low * scale, 127 - high * scale).clamp(-128, 127).round()
    return (((x * scale).round() + zero).clamp(-128, 127) - zero) / scale


@dataclass
class Estimates:
    """Estimates with one kind of products: the numbers of each draw and the loss on its plus side."""

    two_sided: np.ndarray
    one_sided: np.ndarray
    curvature: np.ndarray
    losses: np.ndarray


class Estimated:
    """A Hugging Face model, batches of tokens (steps, rows, length), and an adapter at which estimates are made. `rounding`: by
    what share the target says that losses may be off."""

    def __init__(self, folder: Path, tokens: torch.Tensor, trained: bool, rounding: float) -> None:
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokens = tokens
        self.rounding = rounding
        self.linears: list[Linear] = []
        for layer in self.model.model.layers:
            for part, names in ((layer.self_attn, "q k v o"), (layer.mlp, "gate up down")):
                for name in names.split():
                    old = getattr(part, f"{name}_proj")
                    self.linears.append(Linear(old.weight, old.bias))
                    setattr(part, f"{name}_proj", self.linears[-1])
        draw = torch.Generator().manual_seed(0)
        self.adapter = []
        for linear in self.linears:
            out, width = linear.weights["fp32"].shape
            a = (torch.rand(RANK, width, generator=draw) * 2 - 1) * width**-0.5
            self.adapter.append((a, torch.randn(out, RANK, generator=draw) * B_SIZE * trained))

    def estimates(self, epsilon: float, kinds: Sequence[Products]) -> dict[Products, Estimates]:
        """The same z and u for each kind."""
        draw = torch.Generator().manual_seed(1)
        losses = np.zeros(
            (len(kinds), len(self.tokens), 1 + 3 * QUERIES)
        )  # here; plus, minus and one-sided of each draw
        for step, batch in enumerate(self.tokens):
            points: list[tuple[float, list[tuple[torch.Tensor, torch.Tensor]]]] = [(0.0, self.adapter)]
            for _ in range(QUERIES):
                z = [
                    (torch.randn(a.shape, generator=draw), torch.randn(b.shape, generator=draw))
                    for a, b in self.adapter
                ]
                u = [(_signs(a.shape, draw), _signs(b.shape, draw)) for a, b in self.adapter]
                points += [(epsilon, z), (-epsilon, z), (epsilon, u)]
            for point, (distance, way) in enumerate(points):
                for linear, (a, b), (za, zb) in zip(self.linears, self.adapter, way, strict=True):
                    linear.a, linear.b = a + distance * za, b + distance * zb
                for place, kind in enumerate(kinds):
                    losses[place, step, point] = self._loss(kind, batch)
        return {kind: _estimates(of, epsilon, self.rounding) for kind, of in zip(kinds, losses, strict=True)}

    @torch.no_grad()
    def _loss(self, products: Products, batch: torch.Tensor) -> float:
        for linear in self.linears:
            linear.products = products
        logits = self.model(input_ids=batch, use_cache=False).logits[:, :-1].double()
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()))


def _signs(shape: torch.Size, draw: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 2, shape, generator=draw) * 2.0 - 1


def _estimates(losses: np.ndarray, epsilon: float, rounding: float) -> Estimates:
    """losses: (steps, 1 + 3 QUERIES)."""
    here = losses[:, :1]
    plus, minus, there = (losses[:, 1 + place :: 3] for place in range(3))
    sigma = np.maximum(there.std(axis=1, ddof=1, keepdims=True), rounding * np.maximum(1.0, here))
    return Estimates(
        ((plus - minus) / (2 * epsilon)).ravel(),
        ((there - here) / (epsilon * sigma)).ravel(),
        (np.abs(plus + minus - 2 * here) / (2 * epsilon**2)).ravel(),
        plus.ravel(),
    )
