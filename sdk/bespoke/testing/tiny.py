# SPDX-License-Identifier: Apache-2.0
"""Tiny models that plan and run at once, created from a configuration and random numbers without a file or download.

Together they cover the cases of a method: separate and tied heads, biases, grouped queries, qk-norm, norms after each branch, a
sliding window with its own RoPE tables, widths that are no multiple of the quantization group, linears without an adapter, and
adapters that train B alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import torch

from bespoke.config import Lora
from bespoke.golden.batch import drawn_arrays
from bespoke.graph.trace import Tracer
from bespoke.model.architecture import ModelConfig, RopeConfig
from bespoke.model.quantize import quantize
from bespoke.model.rope import rope_tables
from bespoke.model.spec import ModelSpec
from bespoke.plan.instructions import DType
from bespoke.plan.kinds import ADAPTER_GROUP, ARRAY_PREFIX
from bespoke.rules.batches import PAIRS

CONTEXT = 64  # positions that the RoPE tables cover
Arrays = Mapping[str, np.ndarray]


def _rope(theta: float) -> RopeConfig:
    return RopeConfig(
        kind="default",
        theta=theta,
        factor=None,
        low_freq_factor=None,
        high_freq_factor=None,
        original_max_positions=None,
    )


_PLAIN = ModelConfig(
    family="qwen2",
    hidden_size=48,
    intermediate_size=72,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=12,
    vocab_size=61,
    norm_eps=1e-5,
    activation="silu",
    qkv_bias=True,
    qk_norm=False,
    output_norms=False,
    tied_head=False,
    embedding_scale=1.0,
    attention_scale=12**-0.5,
    rope=_rope(10_000.0),
    rope_local=None,
    sliding_window=None,
    sliding_layers=(False, False),
    max_positions=CONTEXT,
    decoder_path="model",
)
_NORMED = _PLAIN.model_copy(
    update={
        "family": "gemma3_text",
        "activation": "gelu_tanh",
        "qkv_bias": False,
        "qk_norm": True,
        "output_norms": True,
        "tied_head": True,
        "embedding_scale": 48**0.5,
        "attention_scale": 0.2,
        "rope": _rope(1_000_000.0),
        "rope_local": _rope(10_000.0),
        "sliding_window": 4,
        "sliding_layers": (True, False),
    }
)


@cache
def tiny_models() -> dict[str, ModelSpec]:
    """The model, always the same object: a tracer identifies functions by identity, and a model's stages are bound methods."""
    lora = Lora(rank=2, alpha=3.0)
    some = Lora(rank=2, alpha=3.0, targets=("v_proj", "o_proj", "up_proj"))
    only_b = Lora(rank=2, alpha=3.0, targets=("q_proj", "gate_proj", "down_proj"), train="B")
    return {
        "plain": ModelSpec(_PLAIN, lora),
        "normed": ModelSpec(_NORMED, lora),
        "partial": ModelSpec(_PLAIN, some),
        "only_b": ModelSpec(_PLAIN, only_b),
    }


@cache
def shared_tracer() -> Tracer:
    """The tracer for all suites of a process, because tracing takes most of their time."""
    return Tracer()


def random_numbers(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers from a separate stream for each name."""
    generator = np.random.Generator(np.random.Philox(key=[7, zlib.crc32(name.encode())]))
    return generator.standard_normal(shape).astype(np.float32)


@cache
def tiny_weights(name: str) -> dict[str, np.ndarray]:
    """Frozen tensors of a tiny model by full name, quantized as in a bundle."""
    model = tiny_models()[name]
    arrays: dict[str, np.ndarray] = {}
    for group in ("embedding", *model.blocks, "head"):
        for piece, shape in model.weight_shapes(group).items():
            full = f"{group}.{piece}"
            drawn = random_numbers(f"{name} {full}", shape)
            if model.is_quantized(piece):
                scale = np.float32(0.3 if piece == "table" else shape[1] ** -0.5)
                arrays[f"{full}.codes"], arrays[f"{full}.scales"] = quantize(full, scale * drawn)
            else:
                arrays[full] = np.float32(0.2) * drawn + np.float32("norm" in piece)
    for block in range(len(model.blocks)):
        rope = model.config.rope_local if "local" in model.rope_names(block)[0] else model.config.rope
        assert rope is not None
        tables = rope_tables(rope, model.config.head_dim, CONTEXT)
        arrays |= {f"rope.{table}": values for table, values in zip(model.rope_names(block), tables, strict=True)}
    return arrays


def tiny_adapter(name: str) -> dict[str, np.ndarray]:
    """An adapter whose B is not 0. With B = 0 every gradient of A would be 0."""
    model = tiny_models()[name]
    return {
        f"{group}.{piece}": np.float32(0.3) * random_numbers(f"{name} adapter {group}.{piece}", shape)
        for group in model.blocks
        for piece, shape in model.adapter_shapes(group).items()
    }


@dataclass(frozen=True)
class TokenBatch:
    """tokens and targets int64 [B, T], mask fp32 [B, T], and `arrays` that a method asks for."""

    tokens: torch.Tensor
    targets: torch.Tensor
    mask: torch.Tensor
    arrays: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def trained(self) -> float:
        """The number of trained tokens."""
        return float(self.mask.sum())

    def bindings(self) -> dict[str, torch.Tensor]:
        arrays = {f"{ARRAY_PREFIX}{name}": array for name, array in self.arrays.items()}
        return {"tokens": self.tokens, "targets": self.targets, "mask": self.mask, **arrays}


def tiny_batch(
    model: ModelSpec, rows: int, length: int, *, seed: int = 0, arrays: Mapping[str, DType] | None = None
) -> TokenBatch:
    """Random tokens and a mask with gaps. The last of several rows is masked wholly, like a padding row.

    `arrays`: name -> dtype; `bespoke.golden.batch.drawn_arrays` fills them. They are 0 in a row that is masked wholly.
    """
    generator = np.random.Generator(np.random.Philox(key=[seed, length]))
    tokens, targets = (
        torch.from_numpy(generator.integers(0, model.config.vocab_size, (rows, length))) for _ in range(2)
    )
    mask = (generator.random((rows, length)) < 0.6).astype(np.float32)
    mask[0, -1] = 1
    if rows > 1:
        mask[-1] = 0
    extra = drawn_arrays(arrays or {}, (rows, length), model.config.vocab_size, seed)
    held = {
        name: torch.from_numpy(array * mask.any(1, keepdims=True).astype(array.dtype)) for name, array in extra.items()
    }
    return TokenBatch(tokens, targets, torch.from_numpy(mask), held)


def as_pairs(batch: TokenBatch) -> TokenBatch:
    """The batch as a plan reads pairs of answers, if it reads them: all rows are in pairs, with the mask of the first row."""
    if PAIRS not in batch.arrays:
        return batch
    mask = batch.mask[:1].repeat(len(batch.mask), 1)
    return replace(batch, mask=mask, arrays={**batch.arrays, PAIRS: torch.ones_like(mask)})


class TinyWeights:
    """Frozen tensors. A group is accessible from `load` to `free`, as in a bundle."""

    def __init__(self, name: str) -> None:
        frozen = {f"{ADAPTER_GROUP}.{piece}": array for piece, array in tiny_adapter(name).items()}
        self._tensors = {full: torch.from_numpy(array) for full, array in (tiny_weights(name) | frozen).items()}
        self._loaded: set[str] = set()

    def load(self, group: str) -> None:
        self._loaded.add(group)

    def free(self, group: str) -> None:
        self._loaded.discard(group)

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors[name]
