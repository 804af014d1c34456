# SPDX-License-Identifier: Apache-2.0
"""A GGUF file's vocabulary as tokenizer.json: the tokens of the tokenizer that it was made of, and of llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from transformers.convert_slow_tokenizer import generate_merges

from bespoke.compiler.gguf.tokenizer import read_tokenizer
from bespoke.data.text import Tokenizer
from bespoke.errors import ModelError, UnsupportedModel
from bespoke.exports.gguf_vocabulary import read_vocabulary
from bespoke.format.gguf_header import GgufHeader
from tests.support.checks import count
from tests.support.strings import real_texts
from tests.support.trained_tokenizers import TRAINED, config_of, pages, tokenizer_json

BPE = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<|end|>"],
    "tokenizer.ggml.token_type": np.array([1, 1, 1, 3]),
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 3,
}
SPM = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "a", "b", "ab"],
    "tokenizer.ggml.token_type": np.array([2, 1, 1, 1]),
    "tokenizer.ggml.scores": np.array([0.0, -1, -2, -3], np.float32),
}


def header(**metadata: object) -> GgufHeader:
    return GgufHeader(Path("model.gguf"), 0, metadata, {})


def of_tokenizer(kind: str) -> GgufHeader:
    """The vocabulary as `export_base` writes it, which llama.cpp is held to (tests/unit/exports/test_base_for_llama_cpp.py)."""
    data = tokenizer_json(kind)
    size = max(tokenizers.Tokenizer.from_str(data.decode()).get_vocab().values()) + 3
    made = read_vocabulary(data, size)
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": made.model,
        "tokenizer.ggml.pre": made.pre,
        "tokenizer.ggml.tokens": made.tokens,
        "tokenizer.ggml.token_type": np.array(made.types),
    }
    if made.merges is not None:
        metadata["tokenizer.ggml.merges"] = made.merges
    if made.scores is not None:
        metadata["tokenizer.ggml.scores"] = np.array(made.scores, np.float32)
        metadata["tokenizer.ggml.add_space_prefix"] = made.space_first
    return header(**metadata)


def as_transformers_converts(data: bytes) -> bytes:
    """SentencePiece has no merges: transformers makes them of the scores, all pairs of tokens that give a token."""
    document = json.loads(data)
    model = document["model"]
    if model["byte_fallback"]:
        ranks: dict[str, int] = {}
        for rank, (left, right) in enumerate(model["merges"]):
            ranks.setdefault(left + right, rank)
        model["merges"] = generate_merges(model["vocab"], {token: -rank for token, rank in ranks.items()})
    return json.dumps(document).encode()


# Kinds that GGUF cannot hold: a space before byte-level BPE, and unknown tokens for bytes that have none.
NOT_IN_GGUF = ("gpt2_spaced", "gpt2_unknown", "llama_lacking", "gemma_fused", "llama3_fused", "llama2_unknown")


@pytest.mark.parametrize("kind", [kind for kind in TRAINED if kind not in NOT_IN_GGUF])
def test_it_makes_the_tokens_of_the_model(kind: str, data_folder: Path) -> None:
    files = read_tokenizer(of_tokenizer(kind))
    assert files is not None
    found = Tokenizer(json.dumps(files.tokenizer).encode(), files.settings)
    oracle = Tokenizer(as_transformers_converts(tokenizer_json(kind)), config_of(kind))
    texts = [text.removeprefix(" ") for text in (*real_texts(data_folder)[: count(5000)], *pages())]
    assert len(texts) > 60
    for text in texts:
        assert found.encode(text) == oracle.encode(text), repr(text)
        ids = oracle.encode(text)
        assert found.decode(ids) == oracle.decode(ids)


def test_settings_come_from_the_metadata() -> None:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    more = {
        "tokenizer.chat_template": template,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }
    files = read_tokenizer(header(**BPE, **more))
    assert files is not None
    assert files.settings == {
        "add_bos_token": False,
        "bos_token": "a",
        "eos_token": "<|end|>",
        "chat_template": template,
    }
    (added,) = files.tokenizer["added_tokens"]
    assert (added["content"], added["special"]) == ("<|end|>", True)


def test_digits_are_single_where_the_file_names_smollm() -> None:
    """transformers reads the same file without this split."""
    files = read_tokenizer(header(**BPE))
    assert files is not None
    assert {"type": "Digits", "individual_digits": True} in files.tokenizer["pre_tokenizer"]["pretokenizers"]


def test_a_file_without_a_vocabulary_gives_no_tokenizer() -> None:
    assert read_tokenizer(header()) is None
    assert read_tokenizer(header(**{"tokenizer.ggml.model": "none"})) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"tokenizer.ggml.model": "bert"}, "'bert'", id="another model"),
        pytest.param({"tokenizer.ggml.pre": "deepseek-llm"}, "'deepseek-llm'", id="another pre-tokenizer"),
        pytest.param({"tokenizer.ggml.pre": "default"}, "'default'", id="no pre-tokenizer"),
    ],
)
def test_other_kinds_are_refused_by_name(change: dict[str, object], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words) as found:
        read_tokenizer(header(**{**BPE, **change}))
    assert "tokenizer=FOLDER" in found.value.next_step


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({**BPE, "tokenizer.ggml.tokens": ["a", "b", "ab", "a"]}, "'a' twice", id="a token twice"),
        pytest.param({**BPE, "tokenizer.ggml.tokens": None}, "got nothing", id="no tokens"),
        pytest.param({**BPE, "tokenizer.ggml.token_type": np.array([1, 1])}, "4 members", id="too few types"),
        pytest.param(
            {**BPE, "tokenizer.ggml.token_type": np.array([1, 1, 1, 3.5])}, "4 members", id="types that are no numbers"
        ),
        pytest.param({**BPE, "tokenizer.ggml.merges": ["ab"]}, "two tokens with a space", id="a merge of one"),
        pytest.param({**BPE, "tokenizer.ggml.merges": ["a c"]}, "merges of tokens", id="a merge of no token"),
        pytest.param({**SPM, "tokenizer.ggml.scores": np.array([0.0])}, "4 members", id="too few scores"),
        pytest.param({**SPM, "tokenizer.ggml.token_type": "kinds"}, "4 members", id="types that are text"),
    ],
)
def test_damaged_vocabularies_are_errors(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        read_tokenizer(header(**fields))
