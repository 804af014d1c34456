# SPDX-License-Identifier: Apache-2.0
"""Converter from a Hugging Face folder to a bundle's weight files, one per group, row by row.

Groups are `embedding`, `block_00` onwards, `head` and `rope`. A tied head is stored once, in `embedding`. Memory is a
few chunks of rows for a model of any size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.errors import ModelError, UnsupportedModel
from bespoke.format.tensors import TensorWriter, write_arrays
from bespoke.model.architecture import ModelConfig
from bespoke.model.compressed_tensors import open_weights
from bespoke.model.quantization_error import QuantizationError
from bespoke.model.quantize import codes_width, dequantize, groups_of, quantize
from bespoke.model.rope import rope_tables
from bespoke.model.weight_source import WeightSource

__all__ = ["base_sha256", "combine_sha256", "convert", "file_sha256", "hollow_weights"]

HEAD = "lm_head.weight"
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True)
class SourceTensor:
    """A tensor of the checkpoint, and its name and shape in the bundle."""

    target: str  # name in the bundle's group, without .codes and .scales
    name: str
    shape: tuple[int, ...]
    add: float = 0.0  # Gemma's norm weights are stored as w and used as 1 + w

    @property
    def quantized(self) -> bool:
        return len(self.shape) == 2


def convert(
    weights: WeightSource | Path | str,
    config: ModelConfig,
    out: Path | str,
    *,
    context: int,
    counts: Mapping[str, np.ndarray] | None = None,
    progress: Callable[[int, int], None] | None = None,
    error: QuantizationError | None = None,
) -> dict[str, Path]:
    """Write `<group>.safetensors` into `out`; returns group name -> file in the order of the forward pass.

    The same weights give the same bytes. Raises ModelError for a missing, misshapen or non-finite tensor, UnsupportedModel
    for a tensor that the configuration does not account for.

    Args:
        weights: An open source, or a folder with safetensors.
        config: The model that the weights belong to.
        out: The folder to write to. It is created if it does not exist.
        context: Number of positions that the RoPE tables cover.
        counts: Weight of an error in each column (see `quantize`), by the source's tensor names. A tensor without an entry
            has the same weight in all columns.
        progress: Called with (done, total) weights after each chunk.
        error: Collects the difference that quantization makes.
    """
    checkpoint = weights if isinstance(weights, WeightSource) else open_weights(weights)
    groups = sources_of(checkpoint, config)
    _check(checkpoint, groups)

    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)

    total = sum(prod(source.shape) for sources in groups.values() for source in sources)
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    files = {}
    for group, sources in groups.items():
        files[group] = out / f"{group}.safetensors"
        with TensorWriter(files[group], _layout(sources)) as writer:
            for source in sources:
                _write(writer, checkpoint, source, (counts or {}).get(source.name), report, error)
    files["rope"] = out / "rope.safetensors"
    write_arrays(files["rope"], _rope_arrays(config, context))
    return files


def hollow_weights(
    weights: WeightSource | Path | str, config: ModelConfig, out: Path | str, *, context: int
) -> dict[str, Path]:
    """Write files of the size that `convert` gives them, without reading weights. Refuses the same shapes and names."""
    checkpoint = weights if isinstance(weights, WeightSource) else open_weights(weights)
    groups = sources_of(checkpoint, config)
    _check(checkpoint, groups)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)

    files = {group: out / f"{group}.safetensors" for group in (*groups, "rope")}
    for group, sources in groups.items():
        with TensorWriter(files[group], _layout(sources)) as writer:
            writer.leave_hollow()
    write_arrays(files["rope"], _rope_arrays(config, context))
    return files


def base_sha256(files: Mapping[str, Path]) -> str:
    """Identity of the base model that an adapter is trained on. RoPE tables are left out: their length is a setting."""
    return combine_sha256({group: file_sha256(path) for group, path in files.items()})


def combine_sha256(hashes: Mapping[str, str]) -> str:
    """`base_sha256` from each group's file hash (hex): sha256 of the sorted lines "group hash", rope left out."""
    lines = [f"{group} {digest}\n" for group, digest in sorted(hashes.items()) if group != "rope"]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """sha256 of a file, in hex."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sources_of(checkpoint: WeightSource, config: ModelConfig) -> dict[str, list[SourceTensor]]:
    """The tensors of the model by group, under the names that `checkpoint` has for them."""
    heads = [name for name in (HEAD, "language_model.lm_head.weight") if name in checkpoint]
    return named_sources(config, _prefix(checkpoint), heads[0] if heads else HEAD, whole_norms=checkpoint.whole_norms)


def named_sources(
    config: ModelConfig, prefix: str = "model.", head: str = HEAD, *, whole_norms: bool = False
) -> dict[str, list[SourceTensor]]:
    """The tensors of the model by group, under transformers' names with the decoder at `prefix`.

    `whole_norms`: Gemma's norm weights are stored as 1 + w, as they are used.
    """
    d, head_dim = config.hidden_size, config.head_dim
    norm_add = 1.0 if config.output_norms and not whole_norms else 0.0
    table = (config.vocab_size, d)
    groups = {"embedding": [SourceTensor("table", f"{prefix}embed_tokens.weight", table)]}
    norms = {"input_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
    if config.output_norms:
        norms = {
            "input_norm": "input_layernorm",
            "attention_output_norm": "post_attention_layernorm",
            "mlp_norm": "pre_feedforward_layernorm",
            "mlp_output_norm": "post_feedforward_layernorm",
        }

    for layer, group in enumerate(config.block_groups):
        at = f"{prefix}layers.{layer}."
        sources = [SourceTensor(target, f"{at}{name}.weight", (d,), norm_add) for target, name in norms.items()]
        if config.qk_norm:
            sources += [
                SourceTensor(n, f"{at}self_attn.{n}.weight", (head_dim,), norm_add) for n in ("q_norm", "k_norm")
            ]
        for linear, shape in config.linear_shapes.items():
            module = f"{at}{'self_attn' if linear in _ATTENTION else 'mlp'}.{linear}"
            if config.qkv_bias and linear in ("q_proj", "k_proj", "v_proj"):
                sources.append(SourceTensor(f"{linear}.bias", f"{module}.bias", shape[:1]))
            sources.append(SourceTensor(linear, f"{module}.weight", shape))
        groups[group] = sources

    groups["head"] = [SourceTensor("norm", f"{prefix}norm.weight", (d,), norm_add)]
    if not config.tied_head:
        groups["head"].append(SourceTensor("table", head, table))
    return groups


def _prefix(checkpoint: WeightSource) -> str:
    for prefix in _PREFIXES:
        if f"{prefix}embed_tokens.weight" in checkpoint:
            return prefix
    checkpoint.shape("model.embed_tokens.weight")  # raises the error that names it
    return "model."


def _check(checkpoint: WeightSource, groups: Mapping[str, list[SourceTensor]]) -> None:
    """Check shapes, and that no tensor of the decoder is left over: a bias left out would silently change the model."""
    sources = [source for group in groups.values() for source in group]
    for source in sources:
        shape = checkpoint.shape(source.name)
        if shape != source.shape:
            raise ModelError(
                f"tensor {source.name}",
                got=f"shape {list(shape)}",
                expected=f"{list(source.shape)}, by config.json",
                next_step="Check that config.json belongs to these weights",
            )

    layers = (
        f"{_prefix(checkpoint)}layers.",
        "blk.",
    )  # the second is GGUF's name, kept for tensors without a name in transformers
    used = {source.name for source in sources}
    for name in checkpoint.names():
        if name.startswith(layers) and name not in used and not name.endswith("rotary_emb.inv_freq"):
            raise UnsupportedModel(
                f"tensor {name}",
                got="a tensor that the configuration does not account for",
                expected="only the weights of a decoder of this family",
                next_step="Choose a model without it",
            )


def _layout(sources: list[SourceTensor]) -> dict[str, tuple[Any, tuple[int, ...]]]:
    tensors: dict[str, tuple[Any, tuple[int, ...]]] = {}
    for source in sources:
        if source.quantized:
            rows, columns = source.shape
            tensors[f"{source.target}.codes"] = (np.uint8, (rows, codes_width(columns)))
            tensors[f"{source.target}.scales"] = (np.float16, (rows, groups_of(columns)))
        else:
            tensors[source.target] = (np.float32, source.shape)
    return tensors


def _write(
    writer: TensorWriter,
    checkpoint: WeightSource,
    source: SourceTensor,
    counts: np.ndarray | None,
    report: Callable[[int], None],
    error: QuantizationError | None,
) -> None:
    if not source.quantized:
        values = checkpoint.vector(source.name)
        if not np.isfinite(values).all():
            raise ModelError(
                f"tensor {source.name}",
                got="NaN or infinity",
                expected="finite numbers",
                next_step="Check the checkpoint: it is damaged or comes of a diverged training",
            )
        writer.write(source.target, values + np.float32(source.add))
        report(values.size)
        return

    for start, stop in checkpoint.row_ranges(source.name):
        ready = checkpoint.int4_rows(source.name, start, stop)
        if ready is None:
            rows = checkpoint.rows(source.name, start, stop)
            codes, scales = quantize(source.name, rows, counts)
            if error is not None:
                error.add(rows, dequantize(codes, scales, source.shape[1]))
        else:
            codes, scales = ready
            if error is not None:
                error.kept += (stop - start) * source.shape[1]
        writer.write(f"{source.target}.codes", codes)
        writer.write(f"{source.target}.scales", scales)
        report((stop - start) * source.shape[1])


def _rope_arrays(config: ModelConfig, context: int) -> dict[str, np.ndarray]:
    cos, sin = rope_tables(config.rope, config.head_dim, context)
    arrays = {"cos": cos, "sin": sin}
    if config.rope_local is not None:
        arrays["cos_local"], arrays["sin_local"] = rope_tables(config.rope_local, config.head_dim, context)
    return arrays
