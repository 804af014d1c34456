# SPDX-License-Identifier: Apache-2.0
"""A trained model whose products with quantized weights are computed by XNNPACK's formulas (those that tests/unit/targets/
test_int8_products.py holds XNNPACK to), and what that does to a zeroth-order method's estimates."""

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
B_SIZE = 0.02  # of the elements of B, of an adapter that has learned


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
    """Of one kind of products: g of each draw, and the loss on its plus side."""

    g: np.ndarray
    losses: np.ndarray


class Estimated:
    """A Hugging Face model, rows of tokens, and an adapter at which estimates are made."""

    def __init__(self, folder: Path, tokens: torch.Tensor, trained: bool) -> None:
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokens = tokens
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

    def estimates(self, epsilon: float, draws: int, kinds: Sequence[Products]) -> dict[Products, Estimates]:
        """(L(theta + eps z) - L(theta - eps z)) / (2 eps), the same z for each kind."""
        draw = torch.Generator().manual_seed(1)
        sides = np.zeros((len(kinds), draws, 2))
        for number in range(draws):
            z = [tuple(torch.randn(t.shape, generator=draw) for t in pair) for pair in self.adapter]
            for side, step in enumerate((epsilon, -epsilon)):
                for linear, (a, b), (za, zb) in zip(self.linears, self.adapter, z, strict=True):
                    linear.a, linear.b = a + step * za, b + step * zb
                for place, kind in enumerate(kinds):
                    sides[place, number, side] = self._loss(kind)
        return {
            kind: Estimates((of[:, 0] - of[:, 1]) / (2 * epsilon), of[:, 0]) for kind, of in zip(kinds, sides, strict=True)
        }

    @torch.no_grad()
    def _loss(self, products: Products) -> float:
        for linear in self.linears:
            linear.products = products
        logits = self.model(input_ids=self.tokens, use_cache=False).logits[:, :-1].double()
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten()))
