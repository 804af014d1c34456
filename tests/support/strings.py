# SPDX-License-Identifier: Apache-2.0
"""Texts on which tokenizers differ: real ones, and random Unicode strings of many kinds."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path

_POOL = (
    "aZé\u0301ñ你好ÅΩ가각일본日本٣४½²ſ'’s'LL \t\n\r\x0b\x0c\x85\u00a0\u3000\u2028\u200b😀👩\u200d👩🏽ابجดไทย"
    "\u0e33İıßŉ\ufb01.,!?-_#0123456789"
    "'tVEre\u1100\u1161\u11a8\u0323\u0307\u0344\u0958\u2126\u1e9b▁<0x41>\ufeff\U0010ffff\u0345\u0f71\u0f72Ⅷ4๓"
)
_MORE_MARKS = (0x591, 0x5B0, 0x64B, 0x94D, 0x9BC, 0x9BE, 0xE38, 0x1161, 0x11A8, 0x3099, 0x1D165)
_MARKS = [chr(code) for code in (*range(0x300, 0x370), *_MORE_MARKS)]
_RANGES = (
    (0x20, 0x7E),
    (0x20, 0x2FF),
    (0x300, 0x2FFF),
    (0x1100, 0x11FF),
    (0xAC00, 0xD7A3),
    (0x3000, 0xD7FF),
    (0xF900, 0xFFFD),
    (0x10000, 0x1FFFF),
    (0, 0x10FFFF),
)
_WORDS = (
    "don't",
    "I'LL",
    "they'Ve",
    "hello",
    "Hello",
    "WORLD",
    "x1y22z333",
    "1234567",
    "    ",
    "\n\n\n",
    " \n ",
    "\r\n",
    "…",
    "naïve",
    "Ελλάδα",
    "नमस्ते",
)


def character(chance: random.Random) -> str:
    while True:
        code = chance.randint(*chance.choice(_RANGES))
        if not 0xD800 <= code <= 0xDFFF:
            return chr(code)


def random_text(chance: random.Random, added: Sequence[str]) -> str:
    """`added`: the tokenizer's added tokens, of which some texts are made."""
    kind = chance.randrange(6)
    if kind == 0:
        return "".join(chance.choices(_POOL, k=chance.randint(1, 24)))
    if kind == 1:
        return "".join(character(chance) for _ in range(chance.randint(1, 12)))
    if kind == 2:
        return chance.choice(("", " ", "\n", "-")).join(chance.choices(_WORDS, k=chance.randint(1, 8)))
    if kind == 3:  # marks in any order, behind anything
        several = range(chance.randint(1, 4))
        return "".join(character(chance) + "".join(chance.choices(_MARKS, k=chance.randint(0, 5))) for _ in several)
    if kind == 4:  # long words and long runs
        part = chance.choice(("ab", "the", " ", "\n", "a ", "한", "é", "x▁", "▁", "\u0301", "7", "!", *added))
        return chance.choice(("", "Once ")) + part * chance.randint(20, 200) + chance.choice(_WORDS)
    parts = [*added, *_WORDS, " ", "\n", "<", ">", "<|", "|>", "▁", "é", "e\u0301", "née", "ne\u0301e"]
    text = "".join(chance.choices(parts, k=chance.randint(1, 6)))
    cut = chance.randint(0, len(text))
    return text[:cut] + chance.choice(("", " ", character(chance))) + text[cut + chance.randint(0, 1) :]


def real_texts(data_folder: Path) -> list[str]:
    """All of the test data, in pieces of some 2,000 characters that keep their newlines."""
    whole = [path.read_text(encoding="utf-8") for path in sorted((data_folder / "text").rglob("*.txt"))]
    texts = [text[at : at + 2000] for text in whole for at in range(0, len(text), 2000)]
    for path in sorted(data_folder.rglob("*.jsonl")):
        texts += path.read_text(encoding="utf-8").splitlines()
    for path in sorted(data_folder.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            texts += [value for value in json.loads(line).values() if isinstance(value, str)]
    for path in sorted(data_folder.rglob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            texts += [cell for row in csv.reader(file) for cell in row]
    return texts
