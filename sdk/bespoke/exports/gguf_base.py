# SPDX-License-Identifier: Apache-2.0
"""Exports a bundle's base model for llama.cpp, with the same int4 weights bit for bit as GGUF's Q4_0. adapter.gguf goes with it.

The format is ggml/docs/gguf.md, and the package gguf of the same authors writes it. A block of Q4_0 is the fp16 scale of 32 weights
and 16 bytes: the low nibbles are the first 16 weights, the high nibbles the others (block_q4_0 in ggml-common.h). A weight is
(code - 8) * scale, as in a bundle. Rows whose length is not a multiple of 32 cannot be Q4_0 and are written as the same numbers in
float32. Names and the order of rows are those of convert_hf_to_gguf.py (bespoke/model/gguf/names.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from bespoke import arguments
from bespoke.bundle.reader import Bundle, read_bundle
from bespoke.data.tokenizer_from_file import tokenizer_of
from bespoke.errors import BundleError, UnsupportedModel
from bespoke.exports.gguf_vocabulary import read_vocabulary
from bespoke.format.whole_folder import WholeFolder
from bespoke.model.architecture import ModelConfig
from bespoke.model.convert import SourceTensor, named_sources
from bespoke.model.gguf.names import ARCHITECTURES, reordered_heads, tensor_names
from bespoke.model.quantize import GROUP, dequantize
from bespoke.model.rope import rope_stretch
from bespoke.system.descriptors import opens_files

__all__ = ["export_base"]

FILE = "base.gguf"
_LICENCES = "licences/"


@opens_files
def export_base(
    bundle: Path | str,
    folder: Path | str,
    *,
    pin_sha256: str | None = None,
    public_key: bytes | None = None,
    require_authenticated: bool = False,
) -> Path:
    """Writes `folder`/base.gguf, the base model of `bundle` for llama.cpp, and returns its path.

    With an adapter of `PersonalModel.export_adapter(..., "gguf")`, llama.cpp answers with the weights that the adapter was trained
    on. The file has no chat template, because a bundle does not keep it. Needs the package gguf (extra "gguf").

    Args:
        bundle: the folder or file of the bundle.
        folder: the folder to write. It must not exist, or hold only a base that was exported before.
        pin_sha256: the expected sha256 of the bundle's manifest.
        public_key: the ed25519 key that the bundle's signature must fit.
        require_authenticated: refuses a bundle without a pin and without a signature.

    Raises:
        UnsupportedModel: for a model that llama.cpp computes differently.
        ModelError: for a tokenizer that llama.cpp does not know.
    """
    trust = {"pin_sha256": pin_sha256, "public_key": public_key, "require_authenticated": require_authenticated}
    whole = WholeFolder(arguments.folder("folder", folder), BundleError, _replaceable, personal=False)
    try:
        with read_bundle(arguments.folder("bundle", bundle), **trust) as opened:  # type: ignore[arg-type]
            _check(opened.manifest.model.config)
            _write(opened, whole.work / FILE)
            for name in opened.names:
                if name.startswith(_LICENCES):
                    (whole.work / name.removeprefix(_LICENCES)).write_bytes(opened.read(name))
        return whole.finish() / FILE
    finally:
        whole.abandon()


def _check(config: ModelConfig) -> None:
    """Raises UnsupportedModel for settings that a GGUF file cannot express."""
    window = config.sliding_window if config.family != "gemma3_text" else None
    local = config.rope_local.kind if config.rope_local is not None else "default"
    for subject, given, expected in (("sliding_window", window, None), ("rope_local.kind", local, "default")):
        if given != expected:
            raise UnsupportedModel(
                f"the base for llama.cpp: {subject}",
                got=str(given),
                expected=f"{expected}, as llama.cpp has it",
                next_step="Use the bundle itself, or the model merged for transformers",
            )


def _write(bundle: Bundle, path: Path) -> None:
    model, config = bundle.manifest.model, bundle.manifest.model.config
    architecture = gguf.MODEL_ARCH[ARCHITECTURES[config.family]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    try:
        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(model.name)
        writer.add_license(model.licence)
        _add_sizes(writer, config)
        _add_text(writer, bundle)

        tensors = list(_tensors(config))
        for name, source, _ in tensors:
            _announce(writer, name, source)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()

        for _, source, group in tensors:
            writer.write_tensor_data(_data(bundle, source, group))
        writer.flush()
        for file in writer.fout or []:
            os.fsync(file.fileno())
    finally:
        writer.close()


def _add_sizes(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope.theta)
    if config.rope.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(config.rope.factor or 1.0))
    if config.rope_local is not None:
        writer.add_rope_freq_base_swa(config.rope_local.theta)
    if config.sliding_window is not None:
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern(list(config.sliding_layers))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _add_text(writer: gguf.GGUFWriter, bundle: Bundle) -> None:
    text, size = bundle.manifest.text, bundle.manifest.model.config.vocab_size
    writer.add_vocab_size(size)
    tokenizer = tokenizer_of(text, bundle.read)
    if tokenizer is None:
        writer.add_tokenizer_model("none")
        return

    vocabulary = read_vocabulary(tokenizer.files()["tokenizer.json"], size)
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.scores is not None:
        writer.add_token_scores(vocabulary.scores)
        writer.add_add_space_prefix(vocabulary.space_first)
    if vocabulary.merges is not None:
        writer.add_token_merges(vocabulary.merges)

    writer.add_add_bos_token(text.bos_id is not None)
    writer.add_add_eos_token(False)
    if text.bos_id is not None:
        writer.add_bos_token_id(text.bos_id)
    if text.eos_id is not None:
        writer.add_eos_token_id(text.eos_id)


def _tensors(config: ModelConfig) -> Iterator[tuple[str, SourceTensor, str]]:
    """Yields (name in GGUF, tensor, its group). `rope_freqs.weight` is one of them if each frequency has its own factor."""
    groups = {source: group for group, sources in named_sources(config).items() for source in sources}
    for name, source in tensor_names(config, groups).items():
        yield name, source, groups[source]
    if config.rope.kind == "llama3":
        yield "rope_freqs.weight", SourceTensor("rope_freqs", "", (config.head_dim // 2,)), "rope"


def _announce(writer: gguf.GGUFWriter, name: str, source: SourceTensor) -> None:
    if _is_q4_0(source):
        rows, columns = source.shape
        row_bytes = columns // GROUP * 18
        writer.add_tensor_info(
            name, (rows, row_bytes), np.dtype(np.uint8), rows * row_bytes, gguf.GGMLQuantizationType.Q4_0
        )
    else:
        writer.add_tensor_info(name, source.shape, np.dtype(np.float32), 4 * math.prod(source.shape))


def _is_q4_0(source: SourceTensor) -> bool:
    return source.quantized and source.shape[1] % GROUP == 0


def _data(bundle: Bundle, source: SourceTensor, group: str) -> np.ndarray:
    config = bundle.manifest.model.config
    if group == "rope":
        return rope_stretch(config.rope, config.head_dim)
    tensors = bundle.weights(group)
    if not source.quantized:
        share = config.attention_scale / _attention_scale(config) if source.target == "q_norm" else 1.0
        return tensors[source.target] * np.float32(share)
    codes, scales = _with_rows_reordered(config, source, tensors)
    return q4_0(codes, scales) if _is_q4_0(source) else np.ascontiguousarray(dequantize(codes, scales, source.shape[1]))


def _attention_scale(config: ModelConfig) -> float:
    """The attention scale that llama.cpp uses. A file cannot set it, so the query norm carries the ratio to the model's own."""
    is_27b = config.family == "gemma3_text" and config.num_layers == 62
    width = config.hidden_size // config.num_heads if is_27b else config.head_dim
    return float(width**-0.5)


def _with_rows_reordered(
    config: ModelConfig, source: SourceTensor, tensors: Mapping[str, np.ndarray]
) -> tuple[Any, Any]:
    """Codes and scales with their rows in llama.cpp's order."""
    codes, scales = tensors[f"{source.target}.codes"], tensors[f"{source.target}.scales"]
    heads = reordered_heads(config, source)
    if heads is None:
        return codes, scales
    order = np.arange(len(codes)).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)
    return codes[order], scales[order]


def q4_0(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Blocks of Q4_0, uint8 [rows, 18 * groups], from codes uint8 [rows, 16 * groups] and scales float16 [rows, groups]."""
    rows, groups = scales.shape
    pairs = codes.reshape(rows, groups, GROUP // 2)
    blocks = np.empty((rows, groups, 2 + GROUP // 2), np.uint8)
    blocks[:, :, :2] = np.ascontiguousarray(scales).view(np.uint8).reshape(rows, groups, 2)
    first, second = pairs[:, :, : GROUP // 4], pairs[:, :, GROUP // 4 :]  # weights 0 to 15, 16 to 31
    blocks[:, :, 2::2] = (first & 0x0F) | (second << 4)
    blocks[:, :, 3::2] = (first >> 4) | (second & 0xF0)
    return blocks.reshape(rows, -1)


def _replaceable(folder: Path) -> None:
    """Raises BundleError if the folder was not written by an earlier export."""
    if not (folder / FILE).is_file():
        raise BundleError(
            str(folder),
            got="a folder with something else in it",
            expected=f"no folder, or one that holds {FILE}",
            next_step="Choose another folder, or delete this one",
        )
