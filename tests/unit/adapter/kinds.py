# SPDX-License-Identifier: Apache-2.0
"""Adapters of every kind, made by peft itself on a bundle's decoded weights, and the losses that peft finds with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bespoke.config import LINEARS
from tests.support.models import dequantized_reference, masked_loss

VOCABULARY, LENGTH = 131, 14
EVERY = list(LINEARS)
ROWS = [[3 + (7 * row + 13 * place * place) % (VOCABULARY - 3) for place in range(LENGTH)] for row in range(3)]
ASKED = [{"tokens": row, "mask": [0] + [1] * (LENGTH - 1)} for row in ROWS]
TOKENS = torch.tensor(ROWS)


def loss_of(model: Any) -> float:
    with torch.no_grad():
        return float(masked_loss(model, TOKENS[:, :-1], TOKENS[:, 1:], torch.ones(len(ROWS), LENGTH - 1)))


@dataclass(frozen=True)
class Kind:
    """A LoraConfig, and what the bundle (rank 8, alpha 16, all linears of two blocks) does with the adapter."""

    settings: Mapping[str, Any]
    refused: str | None = None  # what the error names
    prepare: Callable[[Any, Any], None] | None = None  # before get_peft_model, with model and configuration
    start: Callable[[Any], None] | None = None  # after it


def corda(model: Any, config: Any) -> None:
    from peft.tuners.lora.corda import preprocess_corda

    preprocess_corda(model, config, run_model=lambda: [model(TOKENS[row : row + 1]) for row in range(len(ROWS))])


def lora_ga(model: Any, config: Any) -> None:
    from peft.tuners.lora.loraga import preprocess_loraga

    def step() -> None:
        model(input_ids=TOKENS, labels=TOKENS).loss.backward()

    model.requires_grad_(True)
    preprocess_loraga(model, config, step)


def eva(model: Any) -> None:
    from peft import initialize_lora_eva_weights

    batch = {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)}
    initialize_lora_eva_weights(model, [batch] * 4, show_progress_bar=False)


def loftq(model: Any) -> None:
    """What peft saves of it; making one takes bitsandbytes, and its base is one that bitsandbytes has quantized."""
    from peft import LoftQConfig

    config = model.peft_config["default"]
    config.init_lora_weights, config.loftq_config = "loftq", vars(LoftQConfig(loftq_bits=4))


def kinds() -> dict[str, Kind]:
    """By name. A function, since peft takes a second to import."""
    from peft import EvaConfig
    from peft.tuners.lora.config import CordaConfig, LoraGAConfig

    def kind(refused: str | None = None, *, prepare: Any = None, start: Any = None, **settings: Any) -> Kind:
        return Kind({"r": 8, "lora_alpha": 16, "target_modules": EVERY, **settings}, refused, prepare, start)

    first, last = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"
    return {
        "as the bundle": kind(),
        "another alpha": kind(lora_alpha=40),
        "a negative alpha": kind(lora_alpha=-8),
        "a lower rank": kind(r=3, lora_alpha=16),
        "rslora": kind(use_rslora=True),
        "rslora of a lower rank": kind(r=2, lora_alpha=5, use_rslora=True),
        "no initialization": kind(init_lora_weights=False),
        "gaussian": kind(init_lora_weights="gaussian"),
        "orthogonal": kind(r=4, init_lora_weights="orthogonal"),
        "mica": kind(r=4, init_lora_weights="mica"),
        "eva with ranks of its own": kind(r=4, init_lora_weights="eva", eva_config=EvaConfig(rho=2.0), start=eva),
        "two linears": kind(target_modules=["q_proj", "v_proj"]),
        "one module by its whole name": kind(target_modules=[first]),
        "all-linear": kind(target_modules="all-linear"),
        "a pattern": kind(target_modules=r".*\.1\.mlp\.(up|down)_proj"),
        "without two linears": kind(exclude_modules=["o_proj", "gate_proj"]),
        "one layer": kind(layers_to_transform=[1]),
        "one layer by its number": kind(layers_to_transform=0),
        "dropout": kind(lora_dropout=0.3),
        "ranks and alphas by name": kind(
            rank_pattern={"k_proj": 2, first: 5, "^" + last: 7},
            alpha_pattern={"mlp.down_proj": 3, r"layers\.0\.self_attn\.v_proj": 64},
        ),
        "rslora with ranks by name": kind(use_rslora=True, rank_pattern={"k_proj": 2}, alpha_pattern={"k_proj": 3}),
        "ranks by a pattern": kind("rank_pattern", rank_pattern={r"layers\.\d\.mlp.*": 2}),
        "alphas by a pattern": kind("alpha_pattern", alpha_pattern={"(q|k)_proj": 2}),
        "a higher rank": kind("r 16", r=16),
        "a higher rank by name": kind("rank_pattern", rank_pattern={"k_proj": 9}),
        "pissa": kind("init_lora_weights pissa", init_lora_weights="pissa"),
        "pissa in four rounds": kind("init_lora_weights pissa_niter_4", init_lora_weights="pissa_niter_4"),
        "olora": kind("init_lora_weights olora", init_lora_weights="olora"),
        "corda": kind("init_lora_weights corda", init_lora_weights="corda", corda_config=CordaConfig(), prepare=corda),
        "loftq": kind("init_lora_weights loftq", start=loftq),
        "lora_ga": kind(
            "init_lora_weights lora_ga",
            init_lora_weights="lora_ga",
            lora_ga_config=LoraGAConfig(),
            prepare=lora_ga,
            r=4,
        ),
        "dora": kind("use_dora", use_dora=True),
        "bias": kind("bias 'lora_only'", bias="lora_only"),
        "biases of B": kind("lora_bias", lora_bias=True),
        "whole modules": kind("modules_to_save", modules_to_save=["lm_head"]),
        "some tokens": kind("trainable_token_indices", trainable_token_indices=[5, 6]),
        "repeated layers": kind("layer_replication", layer_replication=[[0, 2], [1, 2]]),
        "the head too": kind("target_modules", target_modules=[*EVERY, "lm_head"]),
        "the embedding too": kind("target_modules", target_modules=[*EVERY, "embed_tokens"]),
        "the head by a pattern": kind("lm_head", target_modules=r".*(q_proj|lm_head)"),
    }


def made_by_peft(model: Path, kind: Kind, out: Path, seed: int = 0) -> float:
    """Writes `out` as peft saves an adapter whose tensors have moved from where they began; its loss in peft."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    base = dequantized_reference(model)
    config = LoraConfig(task_type="CAUSAL_LM", **kind.settings)
    if kind.prepare is not None:
        kind.prepare(base, config)
    adapted = get_peft_model(base, config).eval()
    if kind.start is not None:
        kind.start(adapted)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad or "lora_" in name:
                parameter += (0.3 if "lora_B" in name else 0.1) * torch.randn(parameter.shape)
    adapted.save_pretrained(str(out))
    return loss_of(adapted)
