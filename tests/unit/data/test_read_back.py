# SPDX-License-Identifier: Apache-2.0
"""A tokenizer read back from its tokenizer.bin does what the original does in the `tokenizers` package, and has the same vocabulary
for llama.cpp. What cannot be read back is known at build; a damaged file is refused."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from bespoke.data.known_bytes import byte_names
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.data.tokenizer_from_file import can_be_read_back, read_tokenizer_file
from bespoke.errors import BundleError, ModelError
from bespoke.exports.gguf_vocabulary import Vocabulary, read_vocabulary
from tests.support.checks import count, full, new_seed, record_check
from tests.support.strings import random_text, real_texts
from tests.support.tokenizer_families import FAMILIES, Family
from tests.support.tokenizer_mutations import HEADER, UNKNOWN, change
from tests.support.trained_tokenizers import config_of, pages, tokenizer_json

STRINGS = 20_000
CONTROL, USER_DEFINED = 3, 4  # types of a token in GGUF


def read_back(family: Family) -> Tokenizer:
    return read_tokenizer_file(family.path.read_bytes(), family.name)


def package(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """The package's own object, from its tokenizer.json."""
    return tokenizers.Tokenizer.from_buffer(tokenizer.files()["tokenizer.json"])


def differences(one: tokenizers.Tokenizer, other: tokenizers.Tokenizer, texts: list[str]) -> list[Any]:
    """Texts of other tokens, as content and as a template's text, and tokens of other text."""
    found: list[Any] = []
    for template in (False, True):
        one.encode_special_tokens = other.encode_special_tokens = not template
        ids, others = (
            [each.ids for each in of.encode_batch_fast(texts, add_special_tokens=False)] for of in (one, other)
        )
        found += [(text, a, b) for text, a, b in zip(texts, ids, others, strict=True) if a != b]
        for skipped in (False, True):
            decoded = (of.decode_batch(ids, skip_special_tokens=skipped) for of in (one, other))
            found += [(a, b) for a, b in zip(*decoded, strict=True) if a != b]
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_it_gives_the_same_tokens_and_text(name: str, family_of: Callable[[str], Family], data_folder: Path) -> None:
    family = family_of(name)
    seed = new_seed()
    chance = random.Random(seed)
    texts = [random_text(chance, list(family.added.values())) for _ in range(count(STRINGS))]
    real = [*pages(), *real_texts(data_folder)]
    texts += real if full() else chance.sample(real, count(STRINGS) // 4)
    back = read_back(family)
    assert differences(family.oracle, package(back), texts)[:3] == []
    every = [[token] for token in range(family.oracle.get_vocab_size() + 1)]
    assert package(back).decode_batch(every) == family.oracle.decode_batch(every)
    assert (back.bos_id, back.eos_id) == (family.bos, family.eos)
    family.record("tokenizer read back from tokenizer.bin", {"texts": len(texts), "tokens alone": len(every)}, seed)


@pytest.mark.parametrize("name", FAMILIES)
def test_it_has_the_same_vocabulary_for_llama_cpp(name: str, family_of: Callable[[str], Family]) -> None:
    family = family_of(name)
    size = family.oracle.get_vocab_size() + 5
    found = vocabulary_or_refusal(read_back(family).files()["tokenizer.json"], size)
    assert found == vocabulary_or_refusal(family.data, size)


def vocabulary_or_refusal(data: bytes, size: int) -> Vocabulary | tuple[str, ...]:
    try:
        return read_vocabulary(data, size)
    except ModelError as refused:
        return refused.subject, refused.got, refused.expected


@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_written_as_the_same_bytes(name: str, family_of: Callable[[str], Family]) -> None:
    assert can_be_read_back(family_of(name).path.read_bytes())


def test_a_marker_that_content_may_not_become_comes_back_as_special() -> None:
    """As GGUF files of llama.cpp's own converter have it; in the original it is an added token like any other."""
    own = Tokenizer.from_bytes(tokenizer_json("qwen2"), json.dumps(config_of("qwen2")).encode())
    data = own.files()["tokenizer.json"]
    own.protect(["<tool_call>"])
    back = read_tokenizer_file(write_tokenizer_file(own))
    marker = own.encode_template("<tool_call>")
    assert back.control_ids == own.control_ids > {*marker}
    for text in ("a <tool_call> b", "<tool_call>x", "<|im_start|>"):
        assert back.encode(text) == own.encode(text)
        assert back.encode_template(text) == own.encode_template(text)
        assert back.decode(back.encode_template(text)) == own.decode(own.encode_template(text))
    before, now = (read_vocabulary(one, own.vocab_size) for one in (data, back.files()["tokenizer.json"]))
    changed = {n: (a, b) for n, (a, b) in enumerate(zip(before.types, now.types, strict=True)) if a != b}
    assert changed == {marker[0]: (USER_DEFINED, CONTROL)}
    assert (before.tokens, before.merges, before.pre) == (now.tokens, now.merges, now.pre)


def test_a_control_token_that_was_not_added_comes_back() -> None:
    config = {"eos_token": "er", "bos_token": "<|im_start|>", "add_bos_token": False}
    own = Tokenizer.from_bytes(tokenizer_json("gpt2"), json.dumps(config).encode())
    back = read_tokenizer_file(write_tokenizer_file(own))
    assert back.eos_id is not None
    assert (back.eos_id, back.bos_id, back.control_ids) == (own.eos_id, None, own.control_ids)


def spelled_twice(document: dict[str, Any]) -> None:
    """A token of letters that are none of the 256, with the bytes of another."""
    written = "".join(byte_names(byte_level=True)[byte] for byte in "é".encode())
    document["model"]["vocab"] |= {
        written: 2000,
        "\u2116": 2001,
        "".join(byte_names(True)[b] for b in "\u2116".encode()): 2002,
    }


def space_beside_its_sign(document: dict[str, Any]) -> None:
    document["model"]["vocab"] |= {" x": 2000, "▁x": 2001}


UNLIKE: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "two tokens of one text": ("gpt2", spelled_twice),
    "a space and its sign": ("llama_never", space_beside_its_sign),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_what_would_come_back_as_another_is_known(case: str) -> None:
    family, alter = UNLIKE[case]
    document = json.loads(tokenizer_json(family))
    alter(document)
    own = Tokenizer.from_bytes(json.dumps(document).encode(), json.dumps(config_of(family)).encode())
    assert not can_be_read_back(write_tokenizer_file(own))


def test_ids_that_nothing_has_come_back_as_gaps() -> None:
    document = json.loads(tokenizer_json("llama3"))
    highest = max(document["model"]["vocab"].values())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["id"] <= highest]
    document["model"]["vocab"]["zzz"] = highest + 40  # found as a whole word
    own = Tokenizer.from_bytes(json.dumps(document).encode(), json.dumps(config_of("llama3")).encode())
    data = write_tokenizer_file(own)
    assert can_be_read_back(data)
    back = read_tokenizer_file(data)
    assert back.encode("zzz") == own.encode("zzz") == [highest + 40]
    assert back.decode([highest + 5]) == own.decode([highest + 5]) == ""


@pytest.mark.parametrize("name", ["qwen3_5", "llama_always"])
def test_a_file_of_version_1_is_read(name: str, family_of: Callable[[str], Family]) -> None:
    family = family_of(name)
    data = bytearray(family.path.read_bytes())
    struct.pack_into("<I", data, 8, 1)
    struct.pack_into("<I", data, UNKNOWN, 0)
    texts = [*pages(), *family.added.values()]
    assert differences(family.oracle, package(read_tokenizer_file(bytes(data))), texts)[:3] == []


@pytest.mark.parametrize("name", ["stories260K", "llama3", "qwen3_5", "llama_always", "llama3_fused", "gemma_fused"])
def test_a_changed_file_is_read_or_refused(name: str, family_of: Callable[[str], Family]) -> None:
    data = family_of(name).path.read_bytes()
    seed = new_seed()
    chance = random.Random(seed)
    tried, refused = count(2000), 0
    for _ in range(tried):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 1, 3))):
            for place, byte in change(chance, data):
                damaged[place : place + 1] = bytes([byte])
        end = len(damaged) if chance.random() < 0.95 else chance.randrange(len(data))
        try:
            back = read_tokenizer_file(bytes(damaged[:end]))
            back.decode(back.encode("Once upon a time, it's 2019: café"))
        except (BundleError, ModelError):
            refused += 1
    assert 0 < refused < tried
    record_check(
        f"tokenizer.bin changed and read back, {name}", {"files": tried, "refused": refused, "raw errors": 0}, seed
    )


def test_long_tokens_that_many_merges_name_are_refused() -> None:
    """Written out, each would take 65,535 bytes once more: a file of some megabytes could fill any memory."""
    document = json.loads(tokenizer_json("gpt2"))
    long = document["added_tokens"][-1]
    long["content"] = "x" * 0xFFFF
    data = bytearray(write_tokenizer_file(Tokenizer.from_bytes(json.dumps(document).encode())))
    (merges,) = struct.unpack_from("<Q", data, 64)
    for slot in range(merges):
        struct.pack_into("<4I", data, HEADER + 4 * 256 + 16 * slot, long["id"], long["id"], slot, long["id"])
    with pytest.raises(BundleError, match="damaged merges"):
        read_tokenizer_file(bytes(data))
