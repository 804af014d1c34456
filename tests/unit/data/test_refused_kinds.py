# SPDX-License-Identifier: Apache-2.0
"""tokenizer.bin is written for the tokenizers that the core runs, the same bytes each time; for any other, `build` fails and
names what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.errors import ModelError
from tests.support.checks import few_of
from tests.support.tokenizer_families import Family
from tests.support.trained_tokenizers import TRAINED, config_of, tokenizer_json

Change = Callable[[dict[str, Any]], object]


def split(document: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = document["pre_tokenizer"]["pretokenizers"][0]
    return part


def with_a_byte_in_small_letters(document: dict[str, Any]) -> None:
    document["model"]["vocab"]["<0x7f>"] = document["model"]["vocab"].pop("<0x7F>")


def with_a_long_token(document: dict[str, Any]) -> None:
    document["added_tokens"][-1]["content"] = "x" * 70_000


CHANGES: dict[str, tuple[str, Change, str]] = {
    # family, what is changed, what the error names
    "lowercase": (
        "qwen2",
        lambda d: d.update(normalizer={"type": "Lowercase"}),
        "normalizer: got Lowercase; expected none or NFC",
    ),
    "NFKC": ("gpt2", lambda d: d.update(normalizer={"type": "NFKC"}), r"normalizer: got NFKC"),
    "another pattern": (
        "llama3",
        lambda d: split(d).update(pattern={"Regex": "a+|."}),
        "got .*a.*expected that of GPT-2, SmolLM",
    ),
    "two numbers": (
        "llama3",
        lambda d: split(d).update(pattern={"Regex": split(d)["pattern"]["Regex"].replace("{1,3}", "{1,2}")}),
        r"pre_tokenizer: got .*1,2",
    ),
    "removed": ("qwen2", lambda d: split(d).update(behavior="Removed"), "pre_tokenizer"),
    "whitespace": (
        "llama2",
        lambda d: d.update(pre_tokenizer={"type": "Whitespace"}),
        "pre_tokenizer: got .*Whitespace",
    ),
    "joint digits": ("smollm", lambda d: split(d).update(individual_digits=False), "pre_tokenizer: got .*Digits"),
    "split words": (
        "llama_first",
        lambda d: d["pre_tokenizer"].update(split=True),
        "got .*Metaspace.*expected Metaspace",
    ),
    "another sign": ("llama_first", lambda d: d["pre_tokenizer"].update(replacement="_"), "pre_tokenizer"),
    "another prefix": ("llama2", lambda d: d["normalizer"]["normalizers"][0].update(prepend="_"), "normalizer"),
    "decoder": ("qwen2", lambda d: d.update(decoder={"type": "Fuse"}), "decoder: got Fuse; expected ByteLevel"),
    "strips two": ("llama2", lambda d: d["decoder"]["decoders"][-1].update(start=2), "decoder"),
    "no byte fallback": ("llama2", lambda d: d["model"].update(byte_fallback=False), r"model\.byte_fallback"),
    "a byte in small letters": ("llama2", with_a_byte_in_small_letters, r"model\.vocab: got the token '<0x7f>'"),
    "no unknown token": ("gpt2_unknown", lambda d: d["model"].update(unk_token="<u>"), "got '<u>', which is no token"),
    "an unknown letter": (
        "gpt2_unknown",
        lambda d: d["model"].update(unk_token="a"),
        "got 'a', which is made of words too",
    ),
    "an unknown word": (
        "llama2_unknown",
        lambda d: d["model"].update(unk_token="th"),
        "got 'th', which is made of words too",
    ),
    "bytes of bytes": ("smollm_lacking", lambda d: d["model"].update(byte_fallback=True), "got true, with ByteLevel"),
    "dropout": ("gpt2", lambda d: d["model"].update(dropout=0.1), r"model\.dropout: got 0\.1; expected none"),
    "suffix": ("gpt2", lambda d: d["model"].update(end_of_word_suffix="</w>"), r"model\.end_of_word_suffix"),
    "whole words": ("gemma", lambda d: d["model"].update(ignore_merges=True), r"model\.ignore_merges"),
    "single word": (
        "qwen2",
        lambda d: d["added_tokens"][-1].update(single_word=True),
        "added token .*: got single_word = true",
    ),
    "strips left": ("qwen2", lambda d: d["added_tokens"][-1].update(lstrip=True), "lstrip = true"),
    "strips right": ("qwen2", lambda d: d["added_tokens"][-1].update(rstrip=True), "rstrip = true"),
    "a long token": ("qwen2", with_a_long_token, "70000 bytes; expected at most 65535"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_kind_is_refused(name: str) -> None:
    family, change, complaint = CHANGES[name]
    document = json.loads(tokenizer_json(family))
    change(document)
    with pytest.raises(ModelError, match=complaint) as caught:
        write_tokenizer_file(Tokenizer.from_bytes(json.dumps(document).encode()), "a model's tokenizer.json")
    assert caught.value.subject.startswith("a model's tokenizer.json: ")
    assert "text=False" in caught.value.next_step


def test_another_model_is_refused() -> None:
    vocabulary = {"[UNK]": 0, "a": 1}
    document = json.loads(tokenizer_json("gpt2"))
    document["model"] = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    with pytest.raises(ModelError, match=r"model\.type: got WordLevel; expected BPE"):
        write_tokenizer_file(Tokenizer.from_bytes(json.dumps(document).encode()))


@pytest.mark.parametrize("name", few_of(TRAINED, ("gpt2", "llama3", "gemma")))
def test_settings_of_no_effect_are_no_difference(name: str, family_of: Callable[[str], Family]) -> None:
    document = json.loads(tokenizer_json(name))
    document["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    for part in (document["pre_tokenizer"], *(document["pre_tokenizer"] or {}).get("pretokenizers", [])):
        if part and part["type"] == "ByteLevel":
            part["trim_offsets"] = not part["trim_offsets"]
    own = Tokenizer.from_bytes(json.dumps(document).encode(), json.dumps(config_of(name)).encode())
    assert write_tokenizer_file(own) == family_of(name).path.read_bytes()


@pytest.mark.slow
def test_the_bytes_are_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_json("qwen3_5"))
    code = (
        "import sys, hashlib\n"
        "from bespoke.data.text import Tokenizer\n"
        "from bespoke.data.tokenizer_file import write_tokenizer_file\n"
        "print(hashlib.sha256(write_tokenizer_file(Tokenizer.open(sys.argv[1]))).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
