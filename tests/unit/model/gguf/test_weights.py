# SPDX-License-Identifier: Apache-2.0
"""Weights and configuration of GGUF files: as transformers reads the same file, Q4_0 and ternary types without a changed bit."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType
from gguf.quants import dequantize
from transformers import AutoModelForCausalLM

from bespoke import Personalizer, PersonalModel, Training, export_base
from bespoke.bundle.reader import read_bundle
from bespoke.compiler.gguf.folder import write_model_folder
from bespoke.errors import ConfigError, ModelError, UnsupportedModel
from bespoke.format.gguf_header import read_gguf_header
from bespoke.format.tensors import map_tensors
from bespoke.model.convert import convert, named_sources
from bespoke.model.families import read_config
from bespoke.model.gguf.checkpoint import GgufCheckpoint
from bespoke.model.quantize import dequantize as decode
from bespoke.model.quantize import quantize
from tests.support.checks import few_of
from tests.support.gguf_files import write_gguf
from tests.support.models import tiny_model

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FAMILIES = {
    "llama": {"intermediate_size": 256, "head_dim": 8},
    "llama3": {"hidden_size": 128, "intermediate_size": 256, "head_dim": 16, "rope_parameters": LLAMA3},
    "qwen2": {"hidden_size": 96, "intermediate_size": 256},
    "qwen3": {"intermediate_size": 256, "head_dim": 128},  # transformers reads no other of a Qwen3 in GGUF
    "gemma3_text": {"intermediate_size": 256, "head_dim": 24, "query_pre_attn_scalar": 24},
}
FLOATS = (Kind.F32, Kind.F16, Kind.BF16)
QUANTIZED = (Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1)
TRAINING = Training(sequence_lengths=(16,), batch_size=1, steps=3)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def small(family: str, folder: Path) -> Path:
    return tiny_model(family, folder, **{"num_hidden_layers": 2, **FAMILIES[family]})


def each_in_turn(*kinds: Kind):
    """Types for matrices, one after the other, where their rows are blocks of it; vectors are float."""
    turn = iter(kinds * 1000)

    def kind_of(name: str, shape: tuple[int, ...]) -> Kind:
        if len(shape) == 1:
            return Kind.F32
        kind = next(turn)
        return kind if kind in FLOATS or shape[-1] % 32 == 0 else Kind.F16

    return kind_of


def opened(path: Path, folder: Path) -> GgufCheckpoint:
    folder.mkdir()
    header = read_gguf_header(path)
    write_model_folder(header, folder, tokenizer=True)
    return GgufCheckpoint(header, read_config(folder))


def test_each_tensor_is_what_transformers_reads(family: str, tmp_path: Path) -> None:
    path = write_gguf(small(family, tmp_path / "model"), tmp_path / "model.gguf", each_in_turn(*FLOATS, *QUANTIZED))
    checkpoint = opened(path, tmp_path / "made")
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32).state_dict()
    config = read_config(tmp_path / "made")
    for source in (source for of in named_sources(config).values() for source in of):
        expected = oracle[source.name].numpy()
        found = np.concatenate([rows for _, rows in checkpoint.chunks(source.name, 1000)])
        np.testing.assert_array_equal(found, expected + np.float32(source.add), err_msg=source.name)


def test_the_configuration_is_that_of_the_model(family: str, tmp_path: Path) -> None:
    model = small(family, tmp_path / "model")
    write_gguf(model, tmp_path / "model.gguf", each_in_turn(Kind.F32))
    opened(tmp_path / "model.gguf", tmp_path / "made")
    expected = read_config(model)
    found = read_config(tmp_path / "made")
    assert found == expected


def test_q4_0_comes_in_without_a_changed_bit(family: str, tmp_path: Path) -> None:
    path = write_gguf(small(family, tmp_path / "model"), tmp_path / "model.gguf", each_in_turn(Kind.Q4_0))
    checkpoint = opened(path, tmp_path / "made")
    config = read_config(tmp_path / "made")
    files = convert(checkpoint, config, tmp_path / "weights", context=8)
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32).state_dict()
    scales = 0
    for group, sources in named_sources(config).items():
        tensors = map_tensors(files[group])
        for source in (source for source in sources if source.quantized and source.shape[1] % 32 == 0):
            codes, stored = tensors[f"{source.target}.codes"], tensors[f"{source.target}.scales"]
            np.testing.assert_array_equal(
                decode(codes, stored, source.shape[1]), oracle[source.name].numpy(), err_msg=source.name
            )
            scales += (stored < 0).sum()
    assert scales > 100  # Q4_0's scales are of either sign


@pytest.mark.parametrize("kind", [Kind.TQ1_0, Kind.TQ2_0], ids=lambda kind: kind.name)
def test_ternary_weights_come_in_without_a_changed_bit(kind: Kind, tmp_path: Path) -> None:
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    model = tiny_model("llama", tmp_path / "model", **wide)
    path = write_gguf(model, tmp_path / "model.gguf", lambda name, shape: Kind.F32 if len(shape) == 1 else kind)
    checkpoint = opened(path, tmp_path / "made")
    name = "model.layers.0.self_attn.k_proj.weight"
    found = checkpoint.int4_rows(name, 5, 37)
    assert found is not None
    np.testing.assert_array_equal(decode(*found, 256), checkpoint.rows(name, 5, 37))
    assert set(np.unique(decode(*found, 256) / np.repeat(found[1].astype(np.float32), 32, 1)).tolist()) == {
        -1.0,
        0.0,
        1.0,
    }


def test_k_quants_are_decoded_and_quantized(tmp_path: Path) -> None:
    """gguf cannot write them; blocks of random bytes with small scales are as good as any."""
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    random = np.random.default_rng(0)

    def stored(values: np.ndarray, kind: Kind) -> np.ndarray:
        blocks = random.integers(0, 256, (values.shape[0], values.shape[1] // 256, 210), np.uint8)
        blocks[:, :, -2:] = np.array([0.003], np.float16).view(np.uint8)
        return blocks.reshape(values.shape[0], -1)

    path = tmp_path / "model.gguf"
    with pytest.MonkeyPatch.context() as patch:
        plain = gguf.quants.quantize
        patch.setattr("gguf.quants.quantize", lambda v, kind: stored(v, kind) if kind == Kind.Q6_K else plain(v, kind))
        write_gguf(
            tiny_model("llama", tmp_path / "model", **wide),
            path,
            lambda name, shape: Kind.F32 if len(shape) == 1 else Kind.Q6_K,
        )
    checkpoint = opened(path, tmp_path / "made")
    files = convert(checkpoint, read_config(tmp_path / "made"), tmp_path / "weights", context=8)
    name = "model.layers.0.mlp.up_proj.weight"
    assert checkpoint.dtype(name) == "Q6_K"
    codes, scales = quantize(name, checkpoint.rows(name, 0, 256))
    written = map_tensors(files["block_00"])
    np.testing.assert_array_equal(written["up_proj.codes"], codes)
    np.testing.assert_array_equal(written["up_proj.scales"], scales)
    raw = np.frombuffer(path.read_bytes(), np.uint8)
    tensor = read_gguf_header(path).tensors["blk.0.ffn_up.weight"]
    size = 256 * 210
    whole = raw[tensor.offset : tensor.offset + size].reshape(256, -1)
    np.testing.assert_array_equal(checkpoint.rows(name, 0, 256), dequantize(whole, Kind.Q6_K))


@pytest.mark.parametrize("family", few_of(FAMILIES, ("llama", "gemma3_text")), indirect=True)
def test_an_exported_base_comes_back_as_the_same_base(family: str, tmp_path: Path) -> None:
    first = Personalizer(small(family, tmp_path / "model"), "mesp", "torch", context=32, training=TRAINING, data=None)
    first.build(tmp_path / "first")
    base = export_base(tmp_path / "first", tmp_path / "base")
    second = Personalizer(base, "mesp", "torch", context=32, training=TRAINING, data=None, text=False)
    second.build(tmp_path / "second")
    with read_bundle(tmp_path / "first") as one, read_bundle(tmp_path / "second") as other:
        for group in ("embedding", *one.manifest.model.config.block_groups, "head"):
            for name, values in one.weights(group).items():
                np.testing.assert_array_equal(other.weights(group)[name], values, err_msg=f"{group} {name}")
        assert one.manifest.model.base_sha256 == other.manifest.model.base_sha256
        assert one.manifest.model.licence == other.manifest.model.licence


@pytest.mark.parametrize("family", few_of(FAMILIES, ("gemma3_text",)), indirect=True)
def test_its_bundle_is_merged_for_transformers_as_that_of_the_folder(family: str, tmp_path: Path) -> None:
    model = small(family, tmp_path / "model")
    Personalizer(model, "mesp", "torch", context=32, training=TRAINING, data=None).build(tmp_path / "bundle")
    base = export_base(tmp_path / "bundle", tmp_path / "base")
    with PersonalModel.open(tmp_path / "bundle", tmp_path / "state") as personal:
        merged = [personal.export_merged(tmp_path / f"of_{given.name}", given, base=True) for given in (model, base)]
    assert len({(folder / "model.safetensors").read_bytes() for folder in merged}) == 1
    tokens = torch.tensor([[5, 9, 2, 30, 7, 7]])
    networks = [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) for folder in merged]
    one, other = (network(input_ids=tokens).logits.detach().numpy() for network in networks)
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def test_a_bundle_is_built_and_estimated(tmp_path: Path) -> None:
    path = write_gguf(small("qwen3", tmp_path / "model"), tmp_path / "model.gguf", each_in_turn(Kind.Q8_0, Kind.Q4_0))
    personalizer = Personalizer(path, "mesp", "torch", context=32, training=TRAINING, text=False)
    estimate = personalizer.estimate()
    bundle = personalizer.build(tmp_path / "bundle")
    with read_bundle(bundle) as made:
        assert made.manifest.model.name == "model.gguf"
        assert made.manifest.model.licence == "apache-2.0"
    size = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    assert size <= estimate.bundle_bytes <= 1.1 * size


def test_a_file_without_a_licence_asks_for_one(tmp_path: Path) -> None:
    path = write_gguf(small("llama", tmp_path / "model"), tmp_path / "model.gguf", each_in_turn(Kind.F16), licence=None)
    with pytest.raises(ConfigError, match=r"licence of .*model\.gguf"):
        Personalizer(path, "mesp", "torch", context=32, training=TRAINING, text=False).build(tmp_path / "bundle")


REFUSED = {
    "another architecture": ({"general__architecture": "mamba"}, UnsupportedModel, "general.architecture"),
    "an adapter": ({"general__type": "adapter"}, UnsupportedModel, "import_adapter"),
    "a part of a model": ({"split__count": 3}, UnsupportedModel, "llama-gguf-split --merge"),
    "experts": ({"llama__expert_count": 8}, UnsupportedModel, "a mixture of experts"),
    "RoPE of another kind": ({"llama__rope__scaling__type": "yarn"}, UnsupportedModel, "yarn"),
    "a part of each head turned": ({"llama__rope__dimension_count": 4}, UnsupportedModel, "rope.dimension_count"),
    "a window": ({"llama__attention__sliding_window": 8}, UnsupportedModel, "sliding_window"),
    "another tokenizer": (
        {"tokenizer__ggml__model": "bert", "tokenizer__ggml__tokens": ["a"], "tokenizer__ggml__token_type": [1]},
        UnsupportedModel,
        "tokenizer=FOLDER",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_built_is_refused_by_name(case: str, tmp_path: Path) -> None:
    fields, error, words = REFUSED[case]
    fields = dict(fields)
    architecture = fields.pop("general__architecture", None)
    path = write_gguf(small("llama", tmp_path / "model"), tmp_path / "model.gguf", each_in_turn(Kind.F16), **fields)
    if architecture is not None:
        path.write_bytes(
            path.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0" + architecture.encode(), 1)
        )
    with pytest.raises(error) as found:
        opened(path, tmp_path / "made")
    assert words in str(found.value), found.value


@pytest.mark.parametrize("heads", [3, 48, 2**20], ids=["no divisor of the rows", "more than rows", "a million"])
def test_heads_that_do_not_divide_the_rows_are_refused(heads: int, tmp_path: Path) -> None:
    path = write_gguf(small("llama", tmp_path / "model"), tmp_path / "model.gguf", each_in_turn(Kind.F16))
    for name in (b"llama.attention.head_count", b"llama.attention.head_count_kv"):
        field = name + struct.pack("<I", GGUFValueType.UINT32)
        place = path.read_bytes().index(field) + len(field)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(struct.pack("<I", heads))
    with pytest.raises(ModelError, match=rf"blk\.0\.attn_\w\.weight .*for {heads} heads"):
        opened(path, tmp_path / "made")


def test_a_bias_that_the_model_does_not_use_is_refused(tmp_path: Path) -> None:
    model = small("qwen2", tmp_path / "model")
    path = write_gguf(model, tmp_path / "model.gguf", each_in_turn(Kind.F16))
    path.write_bytes(path.read_bytes().replace(b"qwen2", b"qwen3"))
    checkpoint = opened(path, tmp_path / "made")
    with pytest.raises((UnsupportedModel, ModelError), match=r"blk\.0\.attn_|q_norm"):
        convert(checkpoint, read_config(tmp_path / "made"), tmp_path / "weights", context=8)
