# SPDX-License-Identifier: Apache-2.0
"""Model folders as people have them, each made by the library that it belongs to: taken as transformers takes it, or named as what
it is. Where the error has a command that makes a folder to build from, the command is run here."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file as arrays_in
from safetensors.torch import load_file, save_file

from bespoke import Personalizer
from bespoke.data.text import Tokenizer
from bespoke.errors import BuildWarning, ModelError
from bespoke.model.checkpoint import Checkpoint
from bespoke.model.convert import sources_of
from bespoke.model.families import read_config
from tests.support.models import tiny_model
from tests.unit.cli.commands import bespoke

SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 400,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny Llama without a tokenizer; change it."""
    return tiny_model("llama", tmp_path / "model", **SIZES)


def personalizer(folder: Path, **settings: Any) -> Personalizer:
    """One that does little, since what is asked here comes first."""
    return Personalizer(folder, [], "torch", data=None, **settings)


def refused(folder: Path, *named: str, **settings: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        personalizer(folder, **settings).estimate()
    assert all(name in caught.value.got for name in named), caught.value.got
    return caught.value


def made_by_the_command(error: ModelError, out: Path) -> None:
    """Runs what the error says; OUT is a folder."""
    import mlx_lm
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (command,) = re.findall(
        r"(?:AutoModelForCausalLM|AutoTokenizer|mlx_lm)\.\w+\(.*?\)(?:\.\w+\(.*?\))*(?=$|,|;)", error.next_step
    )
    names = {
        "AutoModelForCausalLM": AutoModelForCausalLM,
        "AutoTokenizer": AutoTokenizer,
        "mlx_lm": mlx_lm,
        "OUT": str(out),
    }
    eval(command, names)


def weights(folder: Path) -> dict[str, np.ndarray]:
    """As a build reads them."""
    checkpoint = Checkpoint.open(folder)
    groups = sources_of(checkpoint, read_config(folder)).values()
    return {source.name: checkpoint.vector(source.name) for sources in groups for source in sources}


def as_transformers_reads(folder: Path) -> dict[str, np.ndarray]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def check_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], **near: float) -> None:
    assert found.keys() <= expected.keys()
    assert len(found) > 10
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name], **{"rtol": 0.0, "atol": 0.0, **near}, err_msg=name)


# ---- taken, and what is passed over is said ------------------------------------------------------------------------------


def test_a_stale_index_beside_a_whole_file_is_passed_over_as_in_transformers(folder: Path) -> None:
    names = load_file(folder / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-00001-of-00002.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    check_same(weights(folder), as_transformers_reads(folder))
    with pytest.warns(
        BuildWarning, match=r"model.safetensors is taken as the whole model.*index.json and its files are not read"
    ):
        personalizer(folder).estimate()


def test_of_a_whole_file_and_of_shards_the_whole_file_is_taken_as_in_transformers(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, folder / "one.safetensors", {"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "one.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    check_same(weights(folder), as_transformers_reads(folder))


@pytest.fixture
def with_adapter(folder: Path) -> Path:
    """As people save one who name the model's own folder."""
    import peft
    from transformers import AutoModelForCausalLM

    adapted = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(folder), peft.LoraConfig(init_lora_weights=False)
    )
    adapted.save_pretrained(str(folder))
    return folder


def test_an_adapter_in_the_models_folder_is_said_to_be_passed_over(with_adapter: Path, tmp_path: Path) -> None:
    said = "the adapter in the model's folder (adapter_config.json) is not used"
    with pytest.warns(BuildWarning, match=re.escape(said)):
        personalizer(with_adapter).estimate()
    check_same(weights(with_adapter), arrays_in(with_adapter / "model.safetensors"))
    arguments = ("build", str(tmp_path / "out"), "--model", str(with_adapter), "--data", "none", "--dry-run")
    assert said in bespoke(*arguments).ok().out
    notes = bespoke(*arguments, "--format", "json").ok().json["notes"]
    assert [said in note for note in notes] == [True, False]
    assert "--no-text says that it is meant" in notes[1]


def test_a_folder_without_a_tokenizer_is_said_to_give_a_bundle_of_ids_unless_that_was_asked_for(
    folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.warns(BuildWarning, match="no tokenizer.json, so the bundle takes token ids and no text"):
        personalizer(folder).estimate()
    recwarn.clear()
    personalizer(folder, text=False).estimate()
    assert not [warning for warning in recwarn if issubclass(warning.category, BuildWarning)]


# ---- tokenizers in other forms -------------------------------------------------------------------------------------------


def sentencepiece(folder: Path) -> None:
    import sentencepiece

    text = "the quick brown fox jumps over the lazy dog and runs away from all the other animals of the forest"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text] * 50),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=320,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    (folder / "tokenizer.vocab").unlink()
    settings = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def gpt2(folder: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    text = "the quick brown fox jumps over the lazy dog"
    tokenizer.train_from_iterator([text] * 20, vocab_size=300, special_tokens=["<|endoftext|>"])
    tokenizer.save_model(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))


@pytest.mark.parametrize(("make", "file"), [(sentencepiece, "tokenizer.model"), (gpt2, "vocab.json")])
def test_a_tokenizer_of_another_form_is_refused_with_the_command_that_turns_it(
    make: Any, file: str, folder: Path
) -> None:
    make(folder)
    error = refused(folder, file, "no tokenizer.json")
    assert "text=False" in error.next_step
    with pytest.raises(ModelError, match="AutoTokenizer"):
        Tokenizer.open(folder)
    personalizer(folder, text=False).estimate()
    made_by_the_command(error, folder)
    assert Tokenizer.open(folder).encode("the dog")
    personalizer(folder).estimate()


# ---- weights in other forms ----------------------------------------------------------------------------------------------


def without_safetensors(folder: Path) -> dict[str, torch.Tensor]:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    return tensors


def test_pytorchs_pickles_are_named_and_the_command_writes_safetensors(folder: Path) -> None:
    expected = weights(folder)
    torch.save(without_safetensors(folder), folder / "pytorch_model.bin")
    error = refused(folder, "PyTorch weights as a pickle (pytorch_model.bin)")
    made_by_the_command(error, folder)
    check_same(weights(folder), expected)


def test_metas_own_checkpoint_is_named(folder: Path) -> None:
    torch.save(without_safetensors(folder), folder / "consolidated.00.pth")
    (folder / "config.json").rename(folder / "params.json")
    assert "Hugging Face's form" in refused(folder, "Meta's own checkpoint (consolidated.00.pth)").next_step


def test_gguf_is_named(folder: Path) -> None:
    """As llama.cpp's own package writes it, with and without a config.json."""
    from gguf import GGUFWriter

    writer = GGUFWriter(folder / "model-f32.gguf", "llama")
    writer.add_tensor("token_embd.weight", without_safetensors(folder)["model.embed_tokens.weight"].numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for _ in range(2):
        error = refused(folder, "a GGUF file", "model-f32.gguf")
        assert f"model='{folder / 'model-f32.gguf'}'" in error.next_step
        (folder / "config.json").unlink(missing_ok=True)


def with_tokenizer(folder: Path) -> Path:
    gpt2(folder)
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("quantized", [False, True])
def test_a_folder_of_mlx_is_taken_in_float_and_named_with_its_command_where_it_is_quantized(
    quantized: bool, folder: Path, tmp_path: Path
) -> None:
    import mlx_lm

    expected = as_transformers_reads(folder)
    mlx_lm.convert(str(with_tokenizer(folder)), mlx_path=str(tmp_path / "mlx"), quantize=quantized, q_bits=8)
    shutil.copy(folder / "LICENSE", tmp_path / "mlx")
    if not quantized:
        check_same(weights(tmp_path / "mlx"), expected)
        return
    error = refused(tmp_path / "mlx", "quantized by MLX", '"bits": 8')
    made_by_the_command(error, tmp_path / "out")
    check_same(weights(tmp_path / "out"), expected, atol=0.02)


def test_weights_of_mlx_are_known_by_their_tensors_and_by_numpys_form(folder: Path, tmp_path: Path) -> None:
    import mlx.core as mx
    import mlx_lm

    mlx_lm.convert(str(with_tokenizer(folder)), mlx_path=str(tmp_path / "mlx"), quantize=True)
    config = json.loads((tmp_path / "mlx" / "config.json").read_text())
    plain = {name: value for name, value in config.items() if not name.startswith("quantization")}
    (tmp_path / "mlx" / "config.json").write_text(json.dumps(plain))
    refused(tmp_path / "mlx", "quantized by MLX")
    arrays = {name: mx.array(tensor.numpy()) for name, tensor in without_safetensors(folder).items()}
    mx.savez(str(folder / "weights.npz"), **arrays)
    refused(folder, "weights of MLX in NumPy's form (weights.npz)")


# As in the config.json of models on the hub: TheBloke/Llama-2-7B-GPTQ, casperhansen/llama-3-8b-instruct-awq,
# unsloth/llama-3-8b-bnb-4bit, neuralmagic/Meta-Llama-3-8B-Instruct-FP8; with a tensor of each.
PUBLISHED: dict[str, tuple[dict[str, Any], str]] = {
    "GPTQ": ({"bits": 4, "group_size": 128, "desc_act": True, "sym": True, "quant_method": "gptq"}, "qweight"),
    "AWQ": ({"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True}, "qweight"),
    "bitsandbytes": (
        {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "quant_method": "bitsandbytes"},
        "weight",
    ),
    "FP8": ({"activation_scheme": "static", "quant_method": "fp8"}, "weight"),
    "tomorrow": ({"quant_method": "tomorrow"}, "weight"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_quantized_weights_are_named_by_their_method(name: str, folder: Path) -> None:
    settings, tensor = PUBLISHED[name]
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization_config": settings}))
    tensors = load_file(folder / "model.safetensors")
    codes = {key.replace("weight", tensor): torch.zeros(64, 8, dtype=torch.int32) for key in tensors if "_proj" in key}
    save_file(
        {**{key: value for key, value in tensors.items() if "_proj" not in key}, **codes}, folder / "model.safetensors"
    )
    error = refused(folder, f"already quantized: {name}, ")
    assert "Give the float model that it was made from" in error.next_step
    if tensor == "qweight":
        config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": None}))
        refused(folder, "quantized by GPTQ or AWQ")


# ---- an adapter in the place of a model ----------------------------------------------------------------------------------


def test_an_adapter_of_peft_given_as_a_model_is_named_with_its_base(with_adapter: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (with_adapter / name).rename(tmp_path / "adapter" / name)
    error = refused(tmp_path / "adapter", "an adapter of PEFT (adapter_config.json) and no config.json")
    assert f"Build from its base, {with_adapter}" in error.next_step
    assert f"import_adapter('{tmp_path / 'adapter'}', trust_base=True)" in error.next_step


def test_an_adapter_of_mlx_lm_given_as_a_model_is_named_with_its_base(tmp_path: Path) -> None:
    from mlx_lm.utils import save_config

    save_config({"fine_tune_type": "lora", "model": "mlx-community/Llama-3.2-1B"}, tmp_path / "adapter_config.json")
    assert "mlx-community/Llama-3.2-1B" in refused(tmp_path, "an adapter of mlx-lm (adapter_config.json)").next_step
