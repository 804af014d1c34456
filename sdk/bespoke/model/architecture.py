# SPDX-License-Identifier: Apache-2.0
"""One canonical decoder, described without any family's names. `bespoke.model.families` reads it from Hugging Face folders."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from bespoke.config import Lora, Settings, as_tuple

__all__ = ["ModelConfig", "RopeConfig"]

Family = Literal["llama", "qwen2", "qwen3", "gemma3_text"]


class RopeConfig(Settings):
    """Settings of the rotary tables. `factor` belongs to linear and llama3, the last three fields to llama3 alone."""

    kind: Literal["default", "linear", "llama3"]
    theta: float
    factor: float | None
    low_freq_factor: float | None
    high_freq_factor: float | None
    original_max_positions: int | None


class ModelConfig(Settings):
    """Sizes and switches of a model, for graphs, converter and adapter. No field has a default."""

    family: Family
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    norm_eps: float
    activation: Literal["silu", "gelu_tanh"]
    qkv_bias: bool
    qk_norm: bool
    output_norms: bool  # Gemma 3: each branch is normed again before it is added
    tied_head: bool
    embedding_scale: float
    attention_scale: float
    rope: RopeConfig
    rope_local: RopeConfig | None  # tables of the sliding layers, where they have their own
    sliding_window: int | None  # a query sees itself and the sliding_window - 1 positions before it
    sliding_layers: Annotated[tuple[bool, ...], BeforeValidator(as_tuple)]
    max_positions: int
    decoder_path: Literal["model", "model.language_model"]  # where transformers keeps the decoder; PEFT names need it

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """(out, in) of the seven linears of a block, in the order of the forward pass."""
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        d, f = self.hidden_size, self.intermediate_size
        return {
            "q_proj": (q, d),
            "k_proj": (kv, d),
            "v_proj": (kv, d),
            "o_proj": (d, q),
            "gate_proj": (f, d),
            "up_proj": (f, d),
            "down_proj": (d, f),
        }

    def piece_shapes(self, lora: Lora) -> dict[str, tuple[int, int]]:
        """Shapes of a block's adapter pieces in PEFT's layout: `q_proj.lora_A` [rank, in], `q_proj.lora_B` [out, rank], ..."""
        shapes, linears = {}, self.linear_shapes
        for linear in lora.targets:
            out, width = linears[linear]
            shapes[f"{linear}.lora_A"] = (lora.rank, width)
            shapes[f"{linear}.lora_B"] = (out, lora.rank)
        return shapes

    def adapter_shapes(self, lora: Lora) -> dict[str, tuple[int, int]]:
        """Shapes of all adapter pieces by full name: `block_00.q_proj.lora_A` and so on."""
        pieces = self.piece_shapes(lora)
        return {f"{group}.{name}": shape for group in self.block_groups for name, shape in pieces.items()}

    @property
    def block_groups(self) -> tuple[str, ...]:
        """Names of the weight groups of the blocks, `block_00` onwards."""
        return tuple(f"block_{layer:02d}" for layer in range(self.num_layers))
