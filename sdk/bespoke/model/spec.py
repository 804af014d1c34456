# SPDX-License-Identifier: Apache-2.0
"""The canonical decoder as plain torch functions over (hidden, weights, adapter). Graphs are traced from them.

Its configuration covers Llama, Qwen2/2.5, Qwen3 and Gemma 3 text. Rows are flat: batch and time share a dimension,
N = B * T. RoPE tables, attention windows and weights are inputs, so the same graph serves every block.

Dimensions: B sequences, T tokens, N = B * T, D hidden, H and K query and key-value heads, d head width, r rank.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from bespoke.config import Lora
from bespoke.model import layers
from bespoke.model.architecture import ModelConfig
from bespoke.ops import lookup

UNLIMITED = 2**40  # window of a layer that sees every position before it
Tree = dict[str, Any]
_TRACE_KEYS: dict[Hashable, Hashable] = {}  # an object for each configuration, since configurations are slow to hash


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """Names, shapes and stages of a model with LoRA on the linears `lora.targets`. An adapter holds their pieces only."""

    config: ModelConfig
    lora: Lora

    @cached_property
    def trace_key(self) -> Hashable:
        """Key that is equal for models that differ in depth alone: their stages are the same graphs, traced once."""
        return _TRACE_KEYS.setdefault(
            (self.config.model_copy(update={"num_layers": 0, "sliding_layers": ()}), self.lora), object()
        )

    # ---- names and shapes --------------------------------------------------------------------------------------------

    @property
    def blocks(self) -> tuple[str, ...]:
        """Weight groups of the blocks, in order; adapter groups have the same names."""
        return self.config.block_groups

    def adapter_shapes(self, group: str) -> dict[str, tuple[int, int]]:
        """Pieces of a block's adapter in PEFT's layout; their order is the `tensor` index of the noise counter."""
        return self.config.piece_shapes(self.lora)

    def frozen_pieces(self, group: str) -> dict[str, tuple[int, int]]:
        """Adapter pieces that are not trained: the A of all linears, or none."""
        return {name: shape for name, shape in self.adapter_shapes(group).items() if not self.lora.trains(name)}

    def weight_shapes(self, group: str) -> dict[str, tuple[int, ...]]:
        """Frozen tensors of a group. A quantized name (`is_quantized`) stands for a pair (codes, scales)."""
        c = self.config
        d = c.hidden_size
        if group == "embedding":
            return {"table": (c.vocab_size, d)}
        if group == "head":
            return {"norm": (d,)} | ({} if c.tied_head else {"table": (c.vocab_size, d)})
        shapes: dict[str, tuple[int, ...]] = dict(c.linear_shapes)
        if c.qkv_bias:
            shapes |= {f"{name}.bias": (c.linear_shapes[name][0],) for name in ("q_proj", "k_proj", "v_proj")}
        shapes |= {"input_norm": (d,), "mlp_norm": (d,)}
        if c.output_norms:
            shapes |= {"attention_output_norm": (d,), "mlp_output_norm": (d,)}
        if c.qk_norm:
            shapes |= {"q_norm": (c.head_dim,), "k_norm": (c.head_dim,)}
        return shapes

    def is_quantized(self, name: str) -> bool:
        return name == "table" or name in self.config.linear_shapes

    @property
    def head_table_group(self) -> str:
        """Weight group of the head's matrix: a tied head is stored once, with the embedding."""
        return "embedding" if self.config.tied_head else "head"

    def window(self, block: int) -> int:
        """Number of positions that a query of this block sees, itself included."""
        sliding = self.config.sliding_window is not None and self.config.sliding_layers[block]
        return self.config.sliding_window if sliding and self.config.sliding_window else UNLIMITED

    def rope_names(self, block: int) -> tuple[str, str]:
        """Names of the RoPE tables of this block in the group `rope`."""
        local = self.config.rope_local is not None and self.config.sliding_layers[block]
        return ("cos_local", "sin_local") if local else ("cos", "sin")

    # ---- stages --------------------------------------------------------------------------------------------------------

    def embed(self, tokens: torch.Tensor, weights: Tree) -> torch.Tensor:
        """tokens [B, T] -> [N, D]."""
        hidden = lookup(tokens.reshape(-1), weights["table"])
        return hidden if self.config.embedding_scale == 1.0 else hidden * self.config.embedding_scale

    def linear(self, x: torch.Tensor, name: str, weights: Tree, adapter: Tree) -> torch.Tensor:
        """A linear with its adapter, if it has one: x [N, in] -> [N, out]."""
        bias = weights.get(f"{name}.bias")
        if name not in self.lora.targets:
            return layers.linear(x, weights[name], bias)
        a, b = self.factors(name, weights, adapter)
        return layers.lora_linear(x, weights[name], bias, a, b, scale=self.lora.scale)

    def factors(self, name: str, weights: Tree, adapter: Tree) -> tuple[Any, Any]:
        """A and B of a linear's adapter. An A that is not trained is a weight."""
        a = f"{name}.lora_A"
        return (adapter if self.lora.trains(a) else weights)[a], adapter[f"{name}.lora_B"]

    def norm(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return layers.norm(x, w, eps=self.config.norm_eps)

    def attention_inputs(
        self, x: torch.Tensor, weights: Tree, adapter: Tree, rope: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """x [N, D] -> q [N, H * d], k and v [N, K * d], normed and rotated. Positions are the rows of `rope`."""
        h = self.norm(x, weights["input_norm"])
        q, k, v = (self.linear(h, name, weights, adapter) for name in ("q_proj", "k_proj", "v_proj"))
        return {
            "q": self.rotate(q, weights.get("q_norm"), rope),
            "k": self.rotate(k, weights.get("k_norm"), rope),
            "v": v,
        }

    def rotate(self, x: torch.Tensor, norm: torch.Tensor | None, rope: dict[str, torch.Tensor]) -> torch.Tensor:
        """qk-norm if the model has it, then RoPE: [N, heads * d] -> [N, heads * d]."""
        heads = x.view(-1, rope["cos"].shape[0], x.shape[1] // self.config.head_dim, self.config.head_dim)
        heads = heads if norm is None else self.norm(heads, norm)
        return layers.rope(heads, rope["cos"], rope["sin"]).reshape(x.shape)

    def attention_tile(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: torch.Tensor, window: torch.Tensor
    ) -> torch.Tensor:
        """Queries [tile, H * d] of one sequence against its keys and values [S, K * d]."""
        c = self.config
        return layers.attention_tile(
            q, k, v, start, window, heads=c.num_heads, kv_heads=c.num_kv_heads, scale=c.attention_scale
        )

    def attention_output(self, x: torch.Tensor, o: torch.Tensor, weights: Tree, adapter: Tree) -> torch.Tensor:
        """Residual after attention: x + O(o), O normed again in Gemma 3."""
        branch = self.linear(o, "o_proj", weights, adapter)
        return x + (self.norm(branch, weights["attention_output_norm"]) if self.config.output_norms else branch)

    def mlp_inputs(self, x: torch.Tensor, weights: Tree, adapter: Tree) -> Tree:
        """Operands that all slices of the MLP share.

        `x2` = norm(x), and for the linears with an adapter `h_gate`, `h_up` [N, r] and `a_down` [F, r], down's A transposed.
        """
        x2 = self.norm(x, weights["mlp_norm"])
        inputs: Tree = {"x2": x2}
        for name in ("gate", "up"):
            if f"{name}_proj" in self.lora.targets:
                inputs[f"h_{name}"] = layers.times(x2, layers.transposed(adapter[f"{name}_proj.lora_A"]))
        if "down_proj" in self.lora.targets:
            inputs["a_down"] = layers.transposed(adapter["down_proj.lora_A"], copy=True)
        return inputs

    def mlp_slice(
        self,
        x2: torch.Tensor,
        h_gate: torch.Tensor | None,
        h_up: torch.Tensor | None,
        weights: Tree,
        adapter: Tree,
        a_down: layers.Piece | None,
        start: torch.Tensor,
        *,
        keep: bool = False,
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """(sums, kept) of a slice.

        The sums are its share of `y` [N, D] and, if down has an adapter, of `h_down` [N, r]. With `keep`, its `a` and `u`
        [N, F] are kept.
        """
        a, u = self.mlp_products(x2, h_gate, h_up, weights, adapter)
        sums = layers.gated_mlp_slice(a, u, weights["down_proj"], a_down, start, activation=self.config.activation)
        return sums, {"a": a, "u": u} if keep else {}

    def mlp_products(
        self,
        x2: torch.Tensor,
        h_gate: torch.Tensor | None,
        h_up: torch.Tensor | None,
        weights: Tree,
        adapter: Tree,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """a and u [N, F] of a slice of the width: gate and up, with their adapters if they have any."""
        return layers.gated_products(
            x2,
            h_gate,
            h_up,
            weights["gate_proj"],
            weights["up_proj"],
            adapter.get("gate_proj.lora_B"),
            adapter.get("up_proj.lora_B"),
            scale=self.lora.scale,
        )

    def mlp_branch(self, y: torch.Tensor, h_down: torch.Tensor, adapter: Tree) -> torch.Tensor:
        """The down projection: the summed slices and the adapter's share."""
        return y + self.lora.scale * layers.times(h_down, layers.transposed(adapter["down_proj.lora_B"]))

    def mlp_output(self, x: torch.Tensor, branch: torch.Tensor, weights: Tree) -> torch.Tensor:
        """Residual after the MLP, its branch normed again in Gemma 3."""
        return x + (self.norm(branch, weights["mlp_output_norm"]) if self.config.output_norms else branch)

    def block(
        self, x: torch.Tensor, weights: Tree, adapter: Tree, rope: dict[str, torch.Tensor], window: torch.Tensor
    ) -> torch.Tensor:
        """A whole block as a single graph: x [N, D] -> [N, D]. Autodiff differentiates it."""
        inputs = self.attention_inputs(x, weights, adapter, rope)
        zero = torch.zeros((), dtype=torch.int64, device=x.device)
        length = rope["cos"].shape[0]
        sequences = [{name: t[a : a + length] for name, t in inputs.items()} for a in range(0, x.shape[0], length)]
        o = torch.cat([self.attention_tile(s["q"], s["k"], s["v"], zero, window) for s in sequences])
        return self.after_attention(x, o, weights, adapter)

    def after_attention(self, x: torch.Tensor, o: torch.Tensor, weights: Tree, adapter: Tree) -> torch.Tensor:
        """What follows a block's attention o [N, H * d], with both residuals: x [N, D] -> [N, D]."""
        return self.mlp(self.attention_output(x, o, weights, adapter), weights, adapter)

    def mlp(self, x: torch.Tensor, weights: Tree, adapter: Tree) -> torch.Tensor:
        """The whole MLP with its residual: x [N, D] -> [N, D]."""
        x2 = self.norm(x, weights["mlp_norm"])
        a, u = self.linear(x2, "gate_proj", weights, adapter), self.linear(x2, "up_proj", weights, adapter)
        branch = self.linear(layers.gate(a, activation=self.config.activation) * u, "down_proj", weights, adapter)
        return self.mlp_output(x, branch, weights)

    def final_norm(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self.norm(x, w)
