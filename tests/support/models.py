# SPDX-License-Identifier: Apache-2.0
"""Model folders for tests: tiny random ones of every family, written by transformers, and their oracle.

`reference_dequantize` is written a second time, group by group, so that a mistake in the SDK's quantizer cannot hide in its own
oracle; activations are what hooks in transformers see. Of the SDK only which texts a model reads when it is quantized is taken.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support.checks import few_of

# "llama3" is Llama with Llama 3's RoPE scaling; in all of them a norm, bias or qk-norm weight is random, never 1 or 0.
TINY_FAMILIES = ("llama", "llama3", "qwen2", "qwen3", "gemma3_text")
EACH_FAMILY = few_of(TINY_FAMILIES, ("llama",))

QUANTIZED_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

_SHARED: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 64,
    "intermediate_size": 172,  # stories260K's, not a multiple of 32
    "num_hidden_layers": 3,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_attention_heads": 8, "num_key_value_heads": 2},
    "llama3": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        # Chosen so that the four frequencies of a head fall in all three of Llama 3's bands.
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 1000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "qwen2": {"hidden_size": 72, "num_attention_heads": 6, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen3": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "tie_word_embeddings": True},
    "gemma3_text": {
        "num_hidden_layers": 7,  # the sixth is the global one
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 20,
        "query_pre_attn_scalar": 24,
        "sliding_window": 8,
    },
}


def tiny_model(
    family: str,
    folder: Path,
    *,
    seed: int = 0,
    dtype: str = "float32",
    sharded: bool = False,
    tied: bool | None = None,
    licence: bool = True,
    **overrides: Any,
) -> Path:
    """Write a tiny random Hugging Face folder and return it.

    `family` is one of TINY_FAMILIES; `dtype` float32, float16 or bfloat16; `sharded` asks for several files and an
    index; `tied` overrides the family's habit; `overrides` are fields of the transformers configuration.
    """
    config = tiny_config(family, tied=tied, **overrides)
    with torch.device("cpu"):
        model = _causal_class(family)(config)
    randomize(model, seed=seed, gemma=family == "gemma3_text")
    model = model.to(getattr(torch, dtype))
    model.config.dtype = getattr(torch, dtype)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, max_shard_size="60KB" if sharded else "10GB")
    if licence:
        (folder / "LICENSE").write_text("Made for tests; no rights reserved.\n", encoding="utf-8")
    return folder


def tiny_config(family: str, *, tied: bool | None = None, **overrides: Any) -> Any:
    """The transformers configuration that `tiny_model` uses."""
    fields = {**_SHARED, **_FAMILIES[family], **overrides}
    if tied is not None:
        fields["tie_word_embeddings"] = tied
    return _config_class(family)(**fields)


def randomize(model: torch.nn.Module, *, seed: int = 0, gemma: bool = False) -> None:
    """Fill every parameter with its own random stream, drawn by numpy so that torch's version does not matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = np.random.Generator(np.random.Philox(key=[seed, zlib.crc32(name.encode())]))
            values = generator.standard_normal(tuple(parameter.shape))
            if "norm" in name:
                values = 0.3 * values + (0.0 if gemma else 1.0)
            elif name.endswith("bias"):
                values = 0.3 * values
            elif "embed_tokens" in name:
                values = (0.15 if gemma else 0.3) * values
            else:
                values = values / np.sqrt(parameter.shape[1])
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))


def reference_dequantize(weight: torch.Tensor, counts: torch.Tensor | None = None, group: int = 32) -> torch.Tensor:
    """What int4 makes of `weight` [out, in] in fp32: for each group the best of three scales by the squared error of `counts` [in],
    codes half to even within [-8, 7]. Sums of 32 are of halves of halves."""
    weight = weight.detach().to(torch.float32)
    pieces = []
    for start in range(0, weight.shape[1], group):
        whole = weight[:, start : start + group]
        part = torch.nn.functional.pad(whole, (0, group - whole.shape[1]))  # (out, 32)
        v = torch.ones(group)
        if counts is not None:
            v[: whole.shape[1]] = counts[start : start + group]
        top, bottom = part.amax(dim=1, keepdim=True), part.amin(dim=1, keepdim=True)
        largest = torch.where(top > -bottom, top, bottom)
        share = part / torch.where(largest == 0, torch.ones_like(largest), largest)
        best = scale = None
        for step in (8.0, 7.3, 8.7):
            q = torch.clamp(torch.round(share * -step), -8, 7)
            up, down = _added(q * v * share), _added(q * v * q)
            ratio = up / torch.where(down == 0, torch.ones_like(down), down)
            better = torch.ones_like(up, dtype=torch.bool) if best is None else up * ratio > best * np.float32(1 + 1e-5)
            best = up * ratio if best is None else torch.where(better, up * ratio, best)
            scale = ratio if scale is None else torch.where(better, ratio, scale)
        assert scale is not None
        scale = (scale * largest).to(torch.float16).to(torch.float32)
        codes = torch.where(scale == 0, torch.zeros_like(part), torch.round(part / torch.where(scale == 0, 1.0, scale)))
        pieces.append((codes.clamp(-8, 7) * scale)[:, : whole.shape[1]])
    return torch.cat(pieces, dim=1)


def _added(x: torch.Tensor) -> torch.Tensor:
    while x.shape[1] > 1:
        left, right = x.chunk(2, dim=1)
        x = left + right
    return x


def dequantized_reference(folder: Path, *, dtype: torch.dtype = torch.float32) -> Any:
    """The transformers model of `folder` with every int4 weight replaced by what it decodes to.

    Of a folder with a tokenizer, weighted by the activations of the texts that a build reads.

    Eager attention, evaluation mode, no parameter asks for a gradient. With `dtype=torch.float64` norms and softmax,
    which transformers computes in fp32 for any dtype, are computed in float64 too; RoPE tables stay fp32 tables.
    """
    from transformers import AutoModelForCausalLM

    stored = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    counts = _counts(Path(folder))
    with torch.no_grad():
        for name, module in model.named_modules():
            last = name.rsplit(".", 1)[-1]
            if last in QUANTIZED_LINEARS or last == "embed_tokens" or (last == "lm_head" and not tied):
                module.weight.copy_(reference_dequantize(module.weight, counts.get(f"{name}.weight")))
        _round_embed_scale(model, stored)
    model.requires_grad_(False)
    model.eval()
    return in_float64(model) if dtype == torch.float64 else model


def _round_embed_scale(model: Any, stored: Mapping[str, Any]) -> None:
    """transformers rounds Gemma's constant to the dtype of the weights."""
    embedding = model.get_input_embeddings()
    if hasattr(embedding, "embed_scale"):
        stored_dtype = getattr(torch, stored.get("dtype") or stored.get("torch_dtype") or "float32")
        embedding.embed_scale.copy_(embedding.embed_scale.to(stored_dtype).to(torch.float32))


def mean_squares(folder: Path, tokens: torch.Tensor) -> dict[str, np.ndarray]:
    """By the name of a matrix, the mean square of each of its inputs in transformers in float64: of linears and of the head."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    seen: dict[str, np.ndarray] = {}

    def watch(name: str) -> Any:
        return lambda _, given: seen.update({name: given[0].square().mean((0, 1)).numpy()})

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            table = tied and name == "lm_head"
            module.register_forward_pre_hook(watch("model.embed_tokens.weight" if table else f"{name}.weight"))
    with torch.no_grad():
        _round_embed_scale(model, json.loads((folder / "config.json").read_text(encoding="utf-8")))
        in_float64(model)(input_ids=tokens, use_cache=False)
    return seen


def _counts(folder: Path) -> dict[str, torch.Tensor]:
    if not (folder / "tokenizer.json").is_file():
        return {}
    from bespoke.compiler.activations import text_windows
    from bespoke.config import Lora
    from bespoke.data.text import Tokenizer
    from bespoke.model.families import read_config
    from bespoke.model.spec import ModelSpec

    tokens = text_windows(ModelSpec(read_config(folder), Lora()), Tokenizer.open(folder))
    if tokens is None:
        return {}
    powers = {name: torch.from_numpy(squares).log2().round() for name, squares in mean_squares(folder, tokens).items()}
    return {name: torch.exp2((power - power.max()).clamp(min=-30)).float() for name, power in powers.items()}


def rope_of(stored: Mapping[str, np.ndarray]) -> Any:
    """The forward of transformers' RoPE that gives a bundle's cosines and sines, in the dtype of its input."""
    rope = {name: torch.from_numpy(table.copy()) for name, table in stored.items()}

    def forward(x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None) -> tuple[torch.Tensor, ...]:
        local = "_local" if layer_type == "sliding_attention" and "cos_local" in rope else ""
        halves = (rope[name + local][position_ids[0]].to(x.dtype) for name in ("cos", "sin"))
        return tuple(torch.cat([half, half], -1)[None] for half in halves)

    return forward


def in_float64(model: Any) -> Any:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register("eager_float64", _eager_float64)
    AttentionMaskInterface.register("eager_float64", eager_mask)
    model.set_attn_implementation("eager_float64")
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = _norm_float64(module)
    return model.to(torch.float64)


def _norm_float64(module: Any) -> Any:
    gemma = type(module).__name__.startswith("Gemma")
    eps = module.eps if gemma else module.variance_epsilon

    def forward(x: torch.Tensor) -> torch.Tensor:
        weight = 1.0 + module.weight if gemma else module.weight
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight

    return forward


def _eager_float64(
    module: Any,
    query: torch.Tensor,  # (B, H, T, d)
    key: torch.Tensor,  # (B, K, T, d)
    value: torch.Tensor,  # (B, K, T, d)
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    scores = query @ key.transpose(2, 3) * (module.head_dim**-0.5 if scaling is None else scaling)  # (B, H, T, T)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = torch.softmax(scores, dim=-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def peft_reference(
    folder: Path, pieces: Mapping[str, np.ndarray], *, rank: int, alpha: float, dtype: torch.dtype = torch.float32
) -> tuple[Any, dict[str, torch.nn.Parameter]]:
    """`dequantized_reference` with peft's LoRA on the linears of `pieces`, and its parameters by our names.

    `pieces` maps `block_03.q_proj.lora_A` to [rank, in] and `.lora_B` to [out, rank]; only these ask
    for a gradient.
    """
    from peft import LoraConfig, get_peft_model

    linears = {name.split(".")[1] for name in pieces}
    settings = LoraConfig(r=rank, lora_alpha=alpha, target_modules=sorted(linears), task_type="CAUSAL_LM")
    model = get_peft_model(dequantized_reference(folder, dtype=dtype), settings).eval()
    parameters: dict[str, torch.nn.Parameter] = {}
    for index, layer in enumerate(model.get_base_model().model.layers):
        for linear in (name for name in QUANTIZED_LINEARS if name in linears):
            module = getattr(layer.self_attn, linear, None) or getattr(layer.mlp, linear)
            for letter in "AB":
                name = f"block_{index:02d}.{linear}.lora_{letter}"
                inner = getattr(module, f"lora_{letter}")["default"]
                inner.weight = torch.nn.Parameter(torch.from_numpy(np.array(pieces[name])).to(dtype))
                parameters[name] = inner.weight
    return model, parameters


def masked_loss(model: Any, tokens: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the positions whose mask is 1; all three are [B, T]."""
    logits = model(input_ids=tokens.long(), use_cache=False).logits  # (B, T, V)
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.long().flatten(), reduction="none")
    kept = mask.flatten().to(losses.dtype)
    return (losses * kept).sum() / kept.sum()


def copy_folder(source: Path, target: Path) -> Path:
    """A writable copy of a read-only model folder."""
    shutil.copytree(source, target)
    for path in [target, *target.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def _config_class(family: str) -> Any:
    import transformers

    return getattr(transformers, f"{_CLASSES[family]}Config")


def _causal_class(family: str) -> Any:
    import transformers

    return getattr(transformers, f"{_CLASSES[family].removesuffix('Text')}ForCausalLM")


_CLASSES = {"llama": "Llama", "llama3": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3_text": "Gemma3Text"}
