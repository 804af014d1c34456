# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of each family that the core runs, as tokenizer.json: trained here on a few pages, since the real ones are not ours to
ship; their settings are those of the families' own files. Qwen2.5's and stories260K's real ones lie in the test data."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.vocab import bytes_to_unicode
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import bespoke

_PAGES = Path(bespoke.__file__).parent / "data" / "general.txt"
_SCRIPTS = (
    "naïve café Zürich Łódź Škoda Straße GROẞ İstanbul; it's, I'll, we've, they're, I'm, you'd, DON'T, I'LL, he'ſ",
    "Привет, как дела? Καλημέρα κόσμε. שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก",
    "你好，世界。 こんにちは、世界！ 안녕하세요 세계",
    "def f(x: int) -> int:\n    return x ** 2  # square\n\n\n\tfor (int i = 0; i < n; ++i) { a[i] += b[i]; }\r\n",
    "1 12 123 1234 12345 1,000,000 3.14159 0x7fff ４２ ½ ² Ⅷ 2026-11-21T16:43:14Z 7:30",
    "😀 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️ → ∀x∈ℝ ▁ ▁▁ <0x41>   three spaces    four",
)
_BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(256)]
_LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]

_BYTE_LEVEL = ("gpt2", "gpt2_spaced", "smollm", "llama3", "qwen2", "qwen3_5")
WHOLE = (*_BYTE_LEVEL, "llama2", "llama_first", "llama_always", "llama_never", "gemma")
SMOLLM2_LACKS = (0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100), 0x04, 0x06, 0x13, 0x14, 0x16, 0x1D)


@dataclass(frozen=True)
class Lacking:
    """A family without tokens for some bytes, and with an unknown token or none for them."""

    family: str
    bytes: tuple[int, ...]
    unknown: str | None = None
    fused: bool = False


LACKING = {
    "smollm_lacking": Lacking("smollm", SMOLLM2_LACKS),
    "qwen2_lacking": Lacking("qwen2", (*SMOLLM2_LACKS, 0x23, 0x3D, 0x81, 0xB3, 0xC3)),
    "gpt2_unknown": Lacking("gpt2_spaced", (*SMOLLM2_LACKS, 0x23, 0xA9, 0xE2), "<unk>"),
    "llama3_fused": Lacking("llama3", (*SMOLLM2_LACKS, 0x3D, 0xC3, 0x80), "<unk>", fused=True),
    "llama_lacking": Lacking("llama_first", (*SMOLLM2_LACKS, 0x81, 0xC3, 0xE4)),
    "llama2_unknown": Lacking("llama2", (*SMOLLM2_LACKS, 0x81, 0xC3, 0xE4), "<unk>"),
    "gemma_fused": Lacking("gemma", (*SMOLLM2_LACKS, 0x81, 0xC3, 0xE4), "<unk>", fused=True),
}
TRAINED = (*WHOLE, *LACKING)


def pages() -> list[str]:
    return [*_PAGES.read_text(encoding="utf-8").splitlines(keepends=True), *_SCRIPTS * 4]


@functools.cache
def tokenizer_json(family: str, more: tuple[str, ...] = ()) -> bytes:
    """`more`: texts to train on beside the pages."""
    texts = [*pages(), *more]
    lacking = LACKING.get(family)
    family = lacking.family if lacking else family
    document = _byte_level(family, texts) if family in _BYTE_LEVEL else _sentencepiece(family, texts)
    if lacking:
        _take_out(document, lacking, byte_level=family in _BYTE_LEVEL)
    return json.dumps(document, ensure_ascii=False).encode()


def lost_characters(family: str) -> str:
    """Characters below U+0400 of which no byte has a token."""
    lacks = set(LACKING[family].bytes) if family in LACKING else set()
    document = json.loads(tokenizer_json(family))
    if document["model"]["byte_fallback"]:  # a character that lacks a byte goes as a whole
        is_lost = lambda c: lacks.intersection(c.encode()) and c not in document["model"]["vocab"]  # noqa: E731
    else:
        is_lost = lambda c: lacks.issuperset(c.encode())  # noqa: E731
    return "".join(filter(is_lost, map(chr, range(0x400))))


def loses(family: str, text: str) -> bool:
    """Whether some bytes of it have no token."""
    if family not in LACKING:
        return False
    lacks, model = set(LACKING[family].bytes), json.loads(tokenizer_json(family))["model"]
    in_vocabulary = set(model["vocab"]) if model["byte_fallback"] else set()
    return any(lacks.intersection(c.encode()) for c in set(text.replace(" ", "▁")) - in_vocabulary)


def _take_out(document: dict[str, Any], lacking: Lacking, byte_level: bool) -> None:
    """The tokens of these bytes, and all that are made of them; the others move up, so that no id is left out."""
    model = document["model"]
    names = {bytes_to_unicode()[byte] if byte_level else f"<0x{byte:02X}>" for byte in lacking.bytes}
    gone = {text for text in model["vocab"] if (names.intersection(text) if byte_level else text in names)}
    kept = sorted(model["vocab"].keys() - gone, key=model["vocab"].__getitem__)
    added = sorted(document["added_tokens"], key=lambda token: int(token["id"]))
    if lacking.unknown is not None and lacking.unknown not in model["vocab"]:
        kept.append(lacking.unknown)
        added.append({**added[0], "content": lacking.unknown})
    model["vocab"] = {text: number for number, text in enumerate(kept)}
    ids = dict(model["vocab"])
    for token in added:
        token["id"] = ids.setdefault(token["content"], len(ids))
    document["added_tokens"] = sorted(added, key=lambda token: int(token["id"]))
    model["merges"] = [
        [left, right] for left, right in model["merges"] if not gone.intersection((left, right, left + right))
    ]
    model["unk_token"], model["fuse_unk"] = lacking.unknown, lacking.fused


def config_of(family: str) -> dict[str, Any]:
    """tokenizer_config.json."""
    if family in LACKING:
        return config_of(LACKING[family].family)
    if family == "llama3":
        return {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "add_bos_token": True}
    if family in _BYTE_LEVEL:
        return {"eos_token": "<|endoftext|>"}
    return {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}


def _byte_level(family: str, texts: list[str]) -> dict[str, Any]:
    one = Tokenizer(models.BPE(ignore_merges=family == "llama3"))
    splits = {"llama3": _LLAMA, "qwen2": _QWEN2, "qwen3_5": _QWEN35}
    if family in splits:
        isolated = pre_tokenizers.Split(Regex(splits[family]), "isolated")
        one.pre_tokenizer = pre_tokenizers.Sequence(
            [isolated, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    elif family == "smollm":
        one.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    else:
        one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=family == "gpt2_spaced")
    if family in ("qwen2", "qwen3_5"):
        one.normalizer = normalizers.NFC()
    one.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = LLAMA_SPECIALS if family == "llama3" else ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )
    one.train_from_iterator(texts, trainer)
    one.add_tokens(["<tool_call>", "<tool_call>x", "  \n", "née"])  # plain ones, looked for in the normalized text
    document: dict[str, Any] = json.loads(one.to_str())
    if family == "llama3":
        # A word that no merges lead to, as Llama 3 has some.
        document["model"]["merges"] = document["model"]["merges"][:-40]
    return document


def _sentencepiece(family: str, texts: list[str]) -> dict[str, Any]:
    one = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    # Merges of one of them go across spaces.
    one.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=family != "gemma")
    specials = ["<unk>", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>"]
    trainer = trainers.BpeTrainer(
        vocab_size=800, special_tokens=[*specials, *_BYTE_NAMES], limit_alphabet=120, show_progress=False
    )
    one.train_from_iterator(texts, trainer)
    document: dict[str, Any] = json.loads(one.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] in specials]
    document["normalizer"] = document["pre_tokenizer"] = None
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    if family == "gemma":
        document["normalizer"] = replace
        document["pre_tokenizer"] = {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        }
        following = max(document["model"]["vocab"].values()) + 1
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        for number, content in enumerate(["\n\n", "\n\n\n", "▁▁", "<table>"]):
            document["added_tokens"].append({"id": following + number, "content": content, **plain})
    elif family == "llama2":
        document["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}
    else:
        scheme = family.removeprefix("llama_")
        document["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if family in ("llama2", "llama_first", "llama_always"):
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    document["decoder"] = {"type": "Sequence", "decoders": steps}
    return document
