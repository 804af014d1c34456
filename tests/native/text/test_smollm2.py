# SPDX-License-Identifier: Apache-2.0
"""SmolLM2's own tokenizer, which lacks tokens for 21 bytes, out of its GGUF: the core's tokens are those of `tokenizers`, and those
of llama.cpp but for one reason."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.exports.gguf_vocabulary import read_vocabulary
from tests.native.text.lab import TextLab
from tests.support.checks import REPOSITORY, count, new_seed, record_check
from tests.support.llama_cpp_lab import LlamaCpp
from tests.support.strings import random_text
from tests.support.trained_tokenizers import SMOLLM2_LACKS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("text")]
STRINGS = 20_000
CONTROL = 3  # type of a token in GGUF


@pytest.fixture(scope="module")
def document(smollm2: Path) -> dict[str, Any]:
    """Its tokenizer.json: what llama.cpp calls "smollm" is Digits and GPT-2's pattern."""
    from gguf import GGUFReader

    said = {
        name: field.contents()
        for name, field in GGUFReader(smollm2).fields.items()
        if name.startswith("tokenizer.ggml.")
    }
    assert (said["tokenizer.ggml.model"], said["tokenizer.ggml.pre"]) == ("gpt2", "smollm")
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokens, types = said["tokenizer.ggml.tokens"], said["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary, merges = {text: n for n, text in enumerate(tokens)}, said["tokenizer.ggml.merges"]
    return {
        "version": "1.0",
        "added_tokens": [{"id": n, "content": text, **plain} for n, text in enumerate(tokens) if types[n] == CONTROL],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges, "unk_token": None},
    }


@pytest.fixture(scope="module")
def oracle(document: dict[str, Any]) -> tokenizers.Tokenizer:
    one = tokenizers.Tokenizer.from_str(json.dumps(document))
    one.encode_special_tokens = True
    return one


@pytest.fixture
def own(document: dict[str, Any], lab: TextLab, tmp_path: Path) -> Tokenizer:
    """Open in the lab."""
    found = Tokenizer.from_bytes(json.dumps(document).encode(), b'{"eos_token": "<|im_end|>"}')
    (tmp_path / "tokenizer.bin").write_bytes(write_tokenizer_file(found))
    lab.open(tmp_path / "tokenizer.bin")
    return found


def strings(data_folder: Path, chance: random.Random, added: list[str]) -> list[str]:
    """Every character below U+0100, alone and in words; lines of WikiText-2 and of code; random ones of all of Unicode."""
    below = [chr(code) for code in range(0x100)]
    found = [*below, *(f"a{c}b" for c in below), *(f"the {c}re{c} #{c}# 1{c}2 {c}" for c in below)]
    found += ["".join(chance.choices(below, k=chance.randint(1, 30))) for _ in range(STRINGS // 10)]
    lines = (data_folder / "text" / "wikitext-2" / "test.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    found += chance.sample(lines, min(len(lines), STRINGS // 5))
    code = [
        line
        for path in sorted((REPOSITORY / "sdk").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").split("\n\n")
    ]
    found += chance.sample(code, min(len(code), STRINGS // 5))
    found += [random_text(chance, added) for _ in range(STRINGS - len(found))]
    return found[: max(count(STRINGS), 768)]


def test_it_lacks_these_bytes(document: dict[str, Any], own: Tokenizer, lab: TextLab) -> None:
    from gguf.vocab import bytes_to_unicode

    names = bytes_to_unicode()
    assert {byte for byte in range(256) if names[byte] not in document["model"]["vocab"]} == set(SMOLLM2_LACKS)
    assert lab.encode(["\x04", "#\x04#"]) == [[], [document["model"]["vocab"]["##"]]]
    assert own.encode("#\x04#") == [document["model"]["vocab"]["##"]]


def test_the_core_has_the_tokens_of_the_package(
    own: Tokenizer, lab: TextLab, oracle: tokenizers.Tokenizer, data_folder: Path
) -> None:
    seed = new_seed()
    texts = strings(data_folder, random.Random(seed), own.added_tokens)
    for template in (False, True):
        oracle.encode_special_tokens = not template
        theirs = [one.ids for one in oracle.encode_batch_fast(texts, add_special_tokens=False)]
        ours = [
            tokens for at in range(0, len(texts), 500) for tokens in lab.encode(texts[at : at + 500], template=template)
        ]
        assert [(text, a, b) for text, a, b in zip(texts, theirs, ours, strict=True) if a != b][:3] == []
        assert lab.decode(theirs, False) == oracle.decode_batch(theirs, skip_special_tokens=False)
    oracle.encode_special_tokens = True
    record_check("tokens of SmolLM2, core and tokenizers", {"strings": len(texts)}, seed)


def test_llama_cpp_merges_before_it_loses_bytes_and_is_else_the_same(
    smollm2: Path, document: dict[str, Any], own: Tokenizer, oracle: tokenizers.Tokenizer, data_folder: Path
) -> None:
    """The one reason for other tokens: "#\\x04#" is two tokens there, since bytes without a token stand between the others until
    these are merged. So it does what the package does with a token for each byte, the added tokens taken out at the end."""
    from gguf.vocab import bytes_to_unicode

    whole = json.loads(json.dumps(document))
    vocabulary = whole["model"]["vocab"]
    size = len(vocabulary)
    vocabulary |= {bytes_to_unicode()[byte]: size + number for number, byte in enumerate(SMOLLM2_LACKS)}
    merging_first = tokenizers.Tokenizer.from_str(json.dumps(whole))
    merging_first.encode_special_tokens = True
    seed = new_seed()
    texts = strings(data_folder, random.Random(seed), own.added_tokens)
    network = LlamaCpp(smollm2)
    counts: Counter[str] = Counter()
    for text in texts:
        theirs, ours = network.tokens(text), oracle.encode(text).ids
        counts["the same" if theirs == ours else "merged before bytes were lost"] += 1
        assert theirs == ours or theirs == [token for token in merging_first.encode(text).ids if token < size], text
    assert counts["merged before bytes were lost"] > 0
    record_check("tokens of SmolLM2, core and llama.cpp", {"strings": len(texts), **counts}, seed)


def test_llama_cpp_reads_our_vocabulary_as_the_models_own(document: dict[str, Any], smollm2: Path) -> None:
    from gguf import GGUFReader

    fields = GGUFReader(smollm2).fields
    found = read_vocabulary(json.dumps(document).encode(), len(document["model"]["vocab"]))
    assert (found.model, found.pre) == ("gpt2", "smollm")
    assert found.tokens == fields["tokenizer.ggml.tokens"].contents()
    assert found.types == fields["tokenizer.ggml.token_type"].contents()
    assert found.merges == fields["tokenizer.ggml.merges"].contents()
