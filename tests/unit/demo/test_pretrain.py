# SPDX-License-Identifier: Apache-2.0
"""The model made on this machine: a complete Hugging Face folder, the same each time, flat at the end, cached."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
import torch
from sample_apps.desktop.everyday_text import conversations
from sample_apps.desktop.pretrain import (
    BEGIN,
    DEFAULT_CACHE,
    END,
    Pretraining,
    cache_key,
    ensure_model,
    pretrain,
    texts,
)
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer as Tokens

SHORT = Pretraining(steps=10, warmup=2, batch=2, row=32, validation_rows=4, tokenizer_documents=4000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten steps: everything but the quality."""
    path = tmp_path_factory.mktemp("short")
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pretrain(SHORT, path)
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)
    return path


def test_folder_is_a_complete_model_with_its_licence(folder: Path) -> None:
    expected = (
        "LICENSE README.md config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json"
    )
    assert set(expected.split()) <= {file.name for file in folder.iterdir()}
    assert (folder / "README.md").read_text().startswith("---\nlicense: apache-2.0\n")
    assert "Apache License" in (folder / "LICENSE").read_text()


def test_transformers_loads_it_and_it_is_a_small_llama_with_grouped_heads_and_a_tied_head(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    config = model.config
    assert config.model_type == "llama"
    assert config.num_key_value_heads < config.num_attention_heads
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert 0.5e6 < sum(p.numel() for p in model.parameters()) < 3e6


def test_chat_template_gives_the_text_that_was_trained_on(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = dataclasses.replace(SHORT, chat_share=1.0)
    for trained, chat in itertools.islice(zip(texts(settings, 7), conversations(7), strict=False), 20):
        assert tokenizer.apply_chat_template(chat, tokenize=False) == trained
        assert trained.startswith(BEGIN)


def test_tokenizer_is_the_same_each_time_and_keeps_any_text(folder: Path, everyday_tokenizer: Tokenizer) -> None:
    assert json.loads((folder / "tokenizer.json").read_text()) == json.loads(everyday_tokenizer.to_str())
    assert everyday_tokenizer.get_vocab_size() == 1024
    for text in ("Nell's note: 12 km!", "  two  spaces\n\nand lines\t", "żółw 猫 🙂", "e\u0301"):
        ids = everyday_tokenizer.encode(text).ids
        assert ids[0] == everyday_tokenizer.token_to_id(BEGIN)
        assert everyday_tokenizer.decode(ids) == text.replace("e\u0301", "é")


def test_the_sdk_reads_tokenizer_and_template_as_transformers_does(folder: Path) -> None:
    reference, ours = AutoTokenizer.from_pretrained(folder), Tokens.open(folder / "tokenizer.json")
    assert [ours.bos_id, ours.eos_id] == [reference.bos_token_id, reference.eos_token_id]
    text = "This morning Nell ran to the harbour."
    assert [ours.bos_id, *ours.encode(text)] == reference(text).input_ids
    turns = compile_turns(reference.chat_template, {"bos_token": BEGIN, "eos_token": END})
    for chat in itertools.islice(conversations(8), 20):
        pieces = "".join(piece.text for piece in turns.render(chat))
        assert pieces == reference.apply_chat_template(chat, tokenize=False)


@pytest.mark.slow
def test_same_settings_give_the_same_weights(folder: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    pretrain(SHORT, tmp_path)
    torch.use_deterministic_algorithms(False)
    assert (tmp_path / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_cache_key_changes_with_every_setting() -> None:
    changed = [
        dataclasses.replace(Pretraining(), **{field.name: getattr(Pretraining(), field.name) + 1})
        for field in dataclasses.fields(Pretraining)
    ]
    keys = {cache_key(settings) for settings in [Pretraining(), *changed]}
    assert len(keys) == len(changed) + 1


@pytest.mark.slow
def test_loss_is_flat_at_the_end_and_the_model_is_made_once() -> None:
    folder = ensure_model(DEFAULT_CACHE)
    report = json.loads((folder / "training.json").read_text())
    assert 0 <= report["improvement_over_last_tenth"] < 0.02
    assert report["validation_loss"][str(Pretraining().steps)] < 0.9
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert ensure_model(DEFAULT_CACHE) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
