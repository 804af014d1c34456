# SPDX-License-Identifier: Apache-2.0
"""The base model in GGUF: our weights to the bit by gguf's own decoder, and in llama.cpp what transformers and peft compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers

import bespoke
from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.errors import BundleError, ModelError, UnsupportedModel
from tests.native.family_folders import family, folder, make
from tests.support.checks import count, few_of, few_rows_of
from tests.support.gguf_files import gguf_name, permuted
from tests.support.llama_cpp_lab import LlamaCpp
from tests.support.models import dequantized_reference, tiny_model
from tests.support.strings import real_texts
from tests.support.trained_tokenizers import TRAINED, config_of, loses, pages, tokenizer_json
from tests.unit.adapter.other_engines import TOKENS, effect_in_peft

__all__ = ["family", "folder"]


def test_the_weights_are_those_of_the_bundle_to_the_bit(folder: Path, family: str, tmp_path: Path) -> None:
    from gguf import GGMLQuantizationType, GGUFReader
    from gguf.quants import dequantize

    path = bespoke.export_base(folder / "bundle", tmp_path / "out")
    assert {file.name for file in path.parent.iterdir()} == {"base.gguf", "LICENSE"}
    found = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    reference = dequantized_reference(folder / "model")
    config, gemma = reference.config, family == "gemma3_text"
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weights in reference.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        expected = weights.numpy()
        linear = name.split(".")[-2]
        if family in ("llama", "llama3") and linear in heads:
            expected = permuted(expected, heads[linear])
        if gemma and "norm" in name:
            expected = expected + np.float32(1)
        tensor = found.pop(gguf_name(name, gemma))
        if gemma and linear == "q_norm":
            expected = expected * np.float32((config.query_pre_attn_scalar / config.head_dim) ** -0.5)
        np.testing.assert_array_equal(dequantize(tensor.data, tensor.tensor_type), expected, err_msg=name)
        if expected.ndim == 2 and expected.shape[1] % 32 == 0:
            assert tensor.tensor_type == GGMLQuantizationType.Q4_0
    assert found.keys() == ({"rope_freqs.weight"} if family == "llama3" else set())


def speaking(model_folder: Path, family: str, kind: str, **sizes: int) -> Path:
    """A tiny model with a tokenizer of this kind; llama.cpp's server takes none without."""
    data = tokenizer_json(kind)
    vocabulary = tokenizers.Tokenizer.from_str(data.decode()).get_vocab()
    tiny_model(family, model_folder, vocab_size=max(vocabulary.values()) + 5, **sizes)
    (model_folder / "tokenizer.json").write_bytes(data)
    (model_folder / "tokenizer_config.json").write_text(json.dumps(config_of(kind)))
    return model_folder


SPEAKING = [("llama3", "llama3"), ("gemma3_text", "gemma"), ("llama", "llama2"), ("qwen2", "qwen2"), ("qwen3", "qwen2")]
SMALL = {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.mark.parametrize(("family", "kind"), few_rows_of(SPEAKING, (0,)), ids=str)
def test_llama_cpp_computes_with_base_and_adapter_what_peft_does(family: str, kind: str, tmp_path: Path) -> None:
    make(speaking(tmp_path / "model", family, kind), tmp_path)
    with PersonalModel.open(tmp_path / "bundle", tmp_path / "state") as model:
        model.import_adapter(tmp_path / "adapters" / "0", trust_base=True)
        adapter = model.export_adapter(tmp_path / "gguf", format="gguf") / "adapter.gguf"
    base = bespoke.export_base(tmp_path / "bundle", tmp_path / "base")
    without, effect = effect_in_peft(tmp_path, decoded=True)
    found, adapted = (in_llama_cpp(base, one, without.shape[-1]) for one in (None, adapter))
    assert distance(found, without) <= 3e-2  # it is the same model there
    assert distance(adapted - found, effect) <= 3e-2
    assert ((without + effect).argmax(-1) != without.argmax(-1)).mean() >= 0.1


NONE_THERE = {
    "gpt2_spaced": "add_prefix_space",
    "gpt2_unknown": "unk_token",
    "llama3_fused": "unk_token",
    "llama_lacking": "no token '<0x04>'",
    "llama2_unknown": "no token '<0x04>'",
    "gemma_fused": "no token '<0x04>'",
}


# Where llama.cpp differs by itself: it does not compose characters (NFC), and puts a space before a text that begins with one.
@pytest.mark.parametrize("kind", few_of([kind for kind in TRAINED if kind not in NONE_THERE], ("qwen2", "llama_never")))
def test_llama_cpp_tokenizes_as_the_model_does(kind: str, data_folder: Path, tmp_path: Path) -> None:
    bundle = built(speaking(tmp_path / "model", "llama", kind, **SMALL), tmp_path / "a.bundle")
    network = LlamaCpp(bespoke.export_base(bundle, tmp_path / "base"))
    oracle = tokenizers.Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    texts = [
        text.removeprefix(" ") for text in (*real_texts(data_folder)[: count(1000)], *pages()) if "<0x41>" not in text
    ]
    # Where a text names a special token, llama.cpp reads words there, as the core does; the oracle reads the token.
    texts = [text.replace("<unk>", "unknown") for text in texts]
    texts = [text for text in texts if not loses(kind, text)]  # llama.cpp merges before it loses bytes
    assert len(texts) > 60
    for text in texts:
        assert network.tokens(text) == oracle.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", few_of(NONE_THERE, ("llama_lacking", "llama3_fused")))
def test_a_tokenizer_that_llama_cpp_does_not_have_is_refused(kind: str, tmp_path: Path) -> None:
    bundle = built(speaking(tmp_path / "model", "llama", kind, **SMALL), tmp_path / "a.bundle")
    with pytest.raises(ModelError, match=NONE_THERE[kind]):
        bespoke.export_base(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def in_llama_cpp(base: Path, adapter: Path | None, vocab_size: int) -> np.ndarray:
    """Logits but for a constant at each place, [rows, tokens, V]."""
    network = LlamaCpp(base, adapter)
    return np.array(
        [[network.log_probabilities(row[: end + 1], vocab_size) for end in range(len(row))] for row in TOKENS]
    )


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Relative norm of the difference, whatever constant was added at each place."""
    found, expected = (logits - logits.mean(-1, keepdims=True) for logits in (found, expected))
    share = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    print(f"differs by {share:.1e}")
    return share


def built(model: Path, out: Path) -> Path:
    training = Training(sequence_lengths=(16,), batch_size=1, steps=3)
    Personalizer(model, "mesp", "torch", context=32, lora=Lora(rank=2), training=training, data=None).build(out)
    return out


def test_what_llama_cpp_has_no_setting_for_is_refused_and_nothing_written(tmp_path: Path) -> None:
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    bundle = built(
        tiny_model("qwen2", tmp_path / "model", **SMALL | window | {"num_hidden_layers": 2}), tmp_path / "a.bundle"
    )
    with pytest.raises(UnsupportedModel, match="sliding_window"):
        bespoke.export_base(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_it_replaces_a_base_and_no_other_folder(folder: Path, tmp_path: Path) -> None:
    first = bespoke.export_base(folder / "bundle", tmp_path / "out").read_bytes()
    assert bespoke.export_base(folder / "bundle", tmp_path / "out").read_bytes() == first
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match="something else"):
        bespoke.export_base(folder / "bundle", tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_linear_scaling_is_written(tmp_path: Path) -> None:
    from gguf import GGUFReader

    scaled = {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}}
    bundle = built(tiny_model("llama", tmp_path / "model", **SMALL | scaled), tmp_path / "a.bundle")
    said = {
        name: field.contents()
        for name, field in GGUFReader(bespoke.export_base(bundle, tmp_path / "out")).fields.items()
    }
    assert said["llama.rope.freq_base"] == 5000.0
    assert (said["llama.rope.scaling.type"], said["llama.rope.scaling.factor"]) == ("linear", 4.0)
    assert said["tokenizer.ggml.model"] == "none"
    assert said["llama.vocab_size"] == 131
