# SPDX-License-Identifier: Apache-2.0
"""The oracle of exact methods: the loss of a tiny model, computed in float64 with autograd.

It shares no code with the graphs. Weights are dense, and attention matrices and the logits [B, T, V] are whole.

Dimensions: B sequences, T tokens, D hidden, H and K query and key-value heads, d head width, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from bespoke.model.quantize import dequantize
from bespoke.model.spec import ModelSpec
from bespoke.ops.dtypes import Tensors
from bespoke.testing.tiny import Arrays, TokenBatch


def loss_and_gradients(
    model: ModelSpec, weights: Arrays, adapter: Arrays, batch: TokenBatch
) -> tuple[float, dict[str, np.ndarray]]:
    """Mean cross-entropy over the unmasked tokens of `batch` and its gradient for every piece of the adapter."""
    leaves = {name: torch.from_numpy(piece).double().requires_grad_() for name, piece in adapter.items()}
    with torch.enable_grad():
        loss = _Dense(model, weights, leaves).loss(batch)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
    return float(loss.detach()), {name: g.numpy() for name, g in zip(leaves, gradients, strict=True)}


class _Dense:
    def __init__(self, model: ModelSpec, weights: Arrays, adapter: Tensors) -> None:
        self.model = model
        self.config = model.config
        self.adapter = adapter
        self.weights = weights

    def weight(self, name: str) -> torch.Tensor:
        group, piece = name.split(".", 1)
        if not self.model.is_quantized(piece):
            return torch.from_numpy(self.weights[name]).double()
        columns = self.model.weight_shapes(group)[piece][1]
        dense = dequantize(self.weights[f"{name}.codes"], self.weights[f"{name}.scales"], columns)
        return torch.from_numpy(dense).double()

    def loss(self, batch: TokenBatch) -> torch.Tensor:
        c = self.config
        x = self.weight("embedding.table")[batch.tokens] * c.embedding_scale  # (B, T, D)
        for block, group in enumerate(self.model.blocks):
            branch = self.attention(self.norm(x, f"{group}.input_norm"), block, group)
            x = x + (self.norm(branch, f"{group}.attention_output_norm") if c.output_norms else branch)
            branch = self.mlp(self.norm(x, f"{group}.mlp_norm"), group)
            x = x + (self.norm(branch, f"{group}.mlp_output_norm") if c.output_norms else branch)
        table = self.weight("embedding.table" if c.tied_head else "head.table")
        logits = F.linear(self.norm(x, "head.norm"), table)  # (B, T, V)
        losses = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none")
        kept = batch.mask.flatten().double()
        return (losses * kept).sum() / kept.sum()

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight(name), self.config.norm_eps)

    def linear(self, x: torch.Tensor, group: str, linear: str) -> torch.Tensor:
        name = f"{group}.{linear}"
        bias = self.weight(f"{name}.bias") if f"{name}.bias" in self.weights else None
        lora = self.model.lora
        if linear not in lora.targets:
            return F.linear(x, self.weight(name), bias)
        a, b = self.adapter[f"{name}.lora_A"], self.adapter[f"{name}.lora_B"]
        return F.linear(x, self.weight(name) + lora.alpha / lora.rank * (b @ a), bias)

    def attention(self, h: torch.Tensor, block: int, group: str) -> torch.Tensor:
        c = self.config
        q, k, v = (
            self.linear(h, group, f"{which}_proj").unflatten(-1, (-1, c.head_dim)).transpose(1, 2) for which in "qkv"
        )  # (B, H or K, T, d)
        if c.qk_norm:
            q, k = self.norm(q, f"{group}.q_norm"), self.norm(k, f"{group}.k_norm")
        q, k = self.turned(q, block), self.turned(k, block)
        k, v = (t.repeat_interleave(c.num_heads // c.num_kv_heads, dim=1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * c.attention_scale  # (B, H, T, T)
        positions = torch.arange(h.shape[1])
        distance = positions[:, None] - positions[None, :]
        seen = (distance >= 0) & (
            distance < (c.sliding_window if c.sliding_layers[block] and c.sliding_window else 2**40)
        )
        mixed = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v
        return self.linear(mixed.transpose(1, 2).flatten(-2), group, "o_proj")

    def turned(self, x: torch.Tensor, block: int) -> torch.Tensor:
        """RoPE as a multiplication of complex numbers: (first half) + i (second half)."""
        cos, sin = (
            torch.from_numpy(self.weights[f"rope.{name}"]).double()[: x.shape[-2]]
            for name in self.model.rope_names(block)
        )
        turned = torch.complex(*x.chunk(2, -1)) * torch.complex(cos, sin)
        return torch.cat([turned.real, turned.imag], -1)

    def mlp(self, h: torch.Tensor, group: str) -> torch.Tensor:
        gate = self.linear(h, group, "gate_proj")
        gate = F.gelu(gate, approximate="tanh") if self.config.activation == "gelu_tanh" else F.silu(gate)
        return self.linear(gate * self.linear(h, group, "up_proj"), group, "down_proj")
