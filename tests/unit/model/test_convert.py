# SPDX-License-Identifier: Apache-2.0
"""Converted weight files against transformers' own loading of the same folder, tensor by tensor."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from bespoke.errors import ModelError, UnsupportedModel
from bespoke.model.convert import base_sha256, combine_sha256, convert, file_sha256
from bespoke.model.families import read_config
from bespoke.model.quantize import dequantize
from bespoke.model.rope import rope_tables
from tests.support.full_size import PUBLISHED, full_size_folder
from tests.support.models import QUANTIZED_LINEARS, TINY_FAMILIES, reference_dequantize, tiny_model
from tests.unit.model.multimodal import tiny_multimodal


def matches(tensors: dict[str, np.ndarray], name: str, weight: torch.Tensor) -> None:
    """The quantized tensor `name` decodes to what a second quantizer makes of the original."""
    decoded = dequantize(tensors.pop(f"{name}.codes"), tensors.pop(f"{name}.scales"), weight.shape[1])
    np.testing.assert_array_equal(decoded, reference_dequantize(weight).numpy())


def equals(tensors: dict[str, np.ndarray], name: str, weight: torch.Tensor, gemma: bool = False) -> None:
    values = tensors.pop(name)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, (1.0 + weight if gemma else weight).detach().numpy())


def check_everything(folder: Path, files: dict[str, Path], decoder: Any, head: Any | None, gemma: bool) -> None:
    groups = {group: load_file(path) for group, path in files.items()}
    matches(groups["embedding"], "table", decoder.embed_tokens.weight)
    for index, layer in enumerate(decoder.layers):
        block = groups[f"block_{index:02d}"]
        norms = {"input_norm": layer.input_layernorm, "mlp_norm": layer.post_attention_layernorm}
        if gemma:
            norms["attention_output_norm"] = layer.post_attention_layernorm
            norms["mlp_norm"] = layer.pre_feedforward_layernorm
            norms["mlp_output_norm"] = layer.post_feedforward_layernorm
        for name in ("q_norm", "k_norm"):
            if hasattr(layer.self_attn, name):
                norms[name] = getattr(layer.self_attn, name)
        for name, norm in norms.items():
            equals(block, name, norm.weight, gemma)
        for name in QUANTIZED_LINEARS:
            module = getattr(layer.self_attn, name, None) or getattr(layer.mlp, name)
            matches(block, name, module.weight)
            if module.bias is not None:
                equals(block, f"{name}.bias", module.bias)
    equals(groups["head"], "norm", decoder.norm.weight, gemma)
    if head is not None:
        matches(groups["head"], "table", head.weight)
    rope = groups.pop("rope")
    config = read_config(folder)
    cos, sin = rope_tables(config.rope, config.head_dim, 48)
    np.testing.assert_array_equal(rope.pop("cos"), cos)
    np.testing.assert_array_equal(rope.pop("sin"), sin)
    if config.rope_local:
        assert rope.pop("cos_local").shape == rope.pop("sin_local").shape == cos.shape
    assert not rope
    assert not any(groups.values()), "nothing is left over"


@pytest.mark.parametrize("family", TINY_FAMILIES)
@pytest.mark.parametrize(("dtype", "sharded"), [("float32", False), ("bfloat16", True)])
def test_every_tensor_of_every_family_arrives(family: str, dtype: str, sharded: bool, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path / "model", dtype=dtype, sharded=sharded)
    config = read_config(folder)
    files = convert(folder, config, tmp_path / "weights", context=48)
    assert list(files) == ["embedding", *config.block_groups, "head", "rope"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    gemma = family == "gemma3_text"
    check_everything(folder, files, model.model, None if config.tied_head else model.lm_head, gemma)


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_stored_once(tied: bool, tmp_path: Path) -> None:
    folder = tiny_model("qwen2", tmp_path / "model", tied=tied, dtype="float16")
    files = convert(folder, read_config(folder), tmp_path / "weights", context=4)
    assert ("table.codes" in load_file(files["head"])) == (not tied)


def test_text_part_of_a_model_with_images_is_found(tmp_path: Path) -> None:
    model = tiny_multimodal(tmp_path / "model")
    config = read_config(tmp_path / "model")
    assert (config.family, config.decoder_path) == ("gemma3_text", "model.language_model")
    files = convert(tmp_path / "model", config, tmp_path / "weights", context=48)
    check_everything(tmp_path / "model", files, model.model.language_model, None, gemma=True)


def test_same_folder_gives_the_same_bytes_and_the_same_identity(tmp_path: Path) -> None:
    folder = tiny_model("qwen3", tmp_path / "model")
    config = read_config(folder)
    first, second = (convert(folder, config, tmp_path / out, context=16) for out in ("a", "b"))
    for group, path in first.items():
        assert path.read_bytes() == second[group].read_bytes()
    assert base_sha256(first) == base_sha256(second)
    assert base_sha256(first) == combine_sha256({group: file_sha256(path) for group, path in first.items()})


def test_identity_is_that_of_the_weights_and_not_of_the_context(tmp_path: Path) -> None:
    folder = tiny_model("qwen3", tmp_path / "model")
    other = tiny_model("qwen3", tmp_path / "other", seed=1)
    config = read_config(folder)
    short, long = (convert(folder, config, tmp_path / f"{n}", context=n) for n in (8, 16))
    assert base_sha256(short) == base_sha256(long)
    assert base_sha256(short) != base_sha256(convert(other, config, tmp_path / "c", context=8))


def test_progress_counts_weights_up_to_all_of_them(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path / "model")
    seen: list[tuple[int, int]] = []
    convert(folder, read_config(folder), tmp_path / "w", context=8, progress=lambda *now: seen.append(now))
    model = AutoModelForCausalLM.from_pretrained(folder)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    held = load_torch(path) | tensors
    save_file({name: tensor for name, tensor in held.items() if tensor is not None}, path, {"format": "pt"})


@pytest.mark.parametrize(
    ("name", "tensor", "named"),
    [
        ("model.layers.1.mlp.up_proj.weight", None, "none of this name"),
        ("model.layers.1.mlp.up_proj.weight", torch.ones(3, 3), "shape [3, 3]"),
        ("model.layers.1.mlp.up_proj.weight", torch.full((172, 72), float("nan")), "NaN"),
        ("model.layers.2.self_attn.k_proj.bias", torch.full((24,), float("inf")), "infinity"),
        ("model.norm.weight", torch.full((72,), float("nan")), "NaN"),
        ("model.embed_tokens.weight", None, "none of this name"),
    ],
)
def test_a_tensor_that_cannot_be_used_is_named(
    name: str, tensor: torch.Tensor | None, named: str, tmp_path: Path
) -> None:
    folder = tiny_model("qwen2", tmp_path / "model")
    config = read_config(folder)
    change(folder, **{name: tensor})
    with pytest.raises(ModelError) as caught:
        convert(folder, config, tmp_path / "w", context=8)
    assert name in caught.value.subject
    assert named in caught.value.got
    assert not (tmp_path / "w" / "rope.safetensors").exists()


def test_a_tensor_that_would_be_ignored_is_refused(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path / "model")
    change(folder, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})  # old checkpoints have it
    convert(folder, read_config(folder), tmp_path / "w", context=8)
    change(folder, **{"model.layers.0.self_attn.o_proj.bias": torch.ones(64)})
    with pytest.raises(UnsupportedModel, match=r"o_proj\.bias"):
        convert(folder, read_config(folder), tmp_path / "w", context=8)


def test_shapes_that_disagree_with_the_configuration_are_refused(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path / "model")
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(raw | {"intermediate_size": 176}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"by config\.json"):
        convert(folder, read_config(folder), tmp_path / "w", context=8)


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
    return 0


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="anonymous memory is read from /proc")
def test_converting_holds_a_few_chunks_of_a_tensor_of_any_size(tmp_path: Path) -> None:
    tiny = {"hidden_size": 896, "num_hidden_layers": 1, "vocab_size": 60_000}  # a table of 215 MB in fp32
    folder = full_size_folder("Qwen2.5-0.5B", tmp_path / "model", **tiny)
    peak, stop = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.002):
            peak = max(peak, anonymous_bytes())

    before, watcher = anonymous_bytes(), threading.Thread(target=watch)
    watcher.start()
    convert(folder, read_config(folder), tmp_path / "w", context=8)
    stop.set()
    watcher.join()
    assert peak - before < 60e6


def test_full_size_folders_are_what_transformers_expects(tmp_path: Path) -> None:
    for name in PUBLISHED:
        small = {"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 1, "vocab_size": 50}
        folder = full_size_folder(name, tmp_path / name, **small)
        model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not report["missing_keys"]
        assert not report["unexpected_keys"]
        assert model.config.num_hidden_layers == 1
