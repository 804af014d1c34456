# SPDX-License-Identifier: Apache-2.0
"""The core's tokens are those of the `tokenizers` package, for every family that it runs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import tokenizers

from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.errors import DataError
from tests.native.text.lab import TextLab
from tests.support.checks import count, full, new_seed
from tests.support.strings import random_text, real_texts
from tests.support.tokenizer_families import Family
from tests.support.trained_tokenizers import pages, tokenizer_json

BATCH = 500
RANDOM_STRINGS = 100_000


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    for begin in range(0, len(texts), BATCH):
        yield list(texts[begin : begin + BATCH])


def differences(lab: TextLab, family: Family, texts: Sequence[str]) -> list[tuple[str, list[int], list[int]]]:
    """(text, the package's tokens, the core's), as content and as a template's text."""
    found = []
    for batch in batches(texts):
        for template in (False, True):
            ours, theirs = lab.encode(batch, template=template), family.all_tokens(batch, template)
            found += [(text, a, b) for text, a, b in zip(batch, theirs, ours, strict=True) if a != b]
    return found


def test_real_texts(lab: TextLab, family: Family, request: pytest.FixtureRequest) -> None:
    texts = pages()
    if full() or family.name in ("qwen2.5", "stories260K"):
        texts += real_texts(request.getfixturevalue("data_folder"))
    if not full():
        texts = random.Random(0).sample(texts, min(len(texts), count(40_000)))
    assert differences(lab, family, texts)[:3] == []
    family.record("tokens of real texts", {"texts": len(texts), "characters": sum(map(len, texts))})


def test_random_strings(lab: TextLab, family: Family) -> None:
    seed, strings = new_seed(), count(RANDOM_STRINGS)
    chance = random.Random(seed)
    added = list(family.added.values())
    texts = [random_text(chance, added) for _ in range(strings)]
    assert differences(lab, family, texts)[:3] == []
    family.record("tokens of random strings", {"strings": strings}, seed)


def test_every_added_token(lab: TextLab, family: Family) -> None:
    texts = []
    for token in family.added.values():
        texts += [token, f"a{token}b", f" {token} ", token * 2, f"{token}\n{token}", f"é{token}é"]
        texts += [token[:-1], token[1:], token.upper()]
    assert differences(lab, family, texts) == []
    for token_id, content in family.added.items():
        assert (
            token_id in lab.encode([f"a {content} b"], template=True)[0] or "▁" in content
        )  # never in this one's texts
        if family.oracle.get_added_tokens_decoder()[token_id].special:
            assert token_id not in lab.encode([f"a {content} b"])[0]


def test_every_character(lab: TextLab, family: Family) -> None:
    """Between letters, behind a digit, an apostrophe and a newline, alone, and before a mark."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    if not full():
        codes = sorted(random.Random(0).sample(codes, count(len(codes))))
    texts = [f"a{c}b 1{c} '{c}\n{c}{c}1 {c}\u0301 '{c}e" for c in map(chr, codes)]
    texts = ["\u2003".join(texts[at : at + 20]) for at in range(0, len(texts), 20)]
    assert differences(lab, family, texts)[:3] == []
    family.record("tokens of every character", {"characters": len(codes)})


def test_long_words_and_runs(lab: TextLab, family: Family) -> None:
    chance = random.Random(1)
    letters = ["".join(chance.choices("abcdeéthing", k=size)) for size in (30, 47, 48, 49, 50, 300, 5000)]
    runs = [
        c * size
        for c in (" ", "\n", "\t ", "a", "7", "▁", "\u0301", "가", "'", "\r\n")
        for size in (1, 2, 3, 100, 3000)
    ]
    assert differences(lab, family, [*letters, *runs, *(f"x{run}y" for run in runs), ""]) == []


def test_a_piece_goes_on_without_the_space_before_a_text(lab: TextLab, family: Family) -> None:
    """Behind a character of which no merge takes a part, the tokens of a piece are those that it has in the whole text."""
    border = "\U0010ffff"  # no kind here lacks the tokens of all of its bytes
    start = family.tokens(border)
    plain = [line[:60].strip() for line in pages()[:40]]
    document = json.loads(family.data)
    if document["model"]["byte_fallback"]:
        expected = [family.tokens(border + text)[len(start) :] for text in plain]
    else:
        for part in (document["pre_tokenizer"], *document["pre_tokenizer"].get("pretokenizers", [])):
            if part["type"] == "ByteLevel":
                part["add_prefix_space"] = False
        unspaced = tokenizers.Tokenizer.from_buffer(json.dumps(document).encode())
        expected = [unspaced.encode(text, add_special_tokens=False).ids for text in plain]
    assert lab.encode(plain, previous=start[-1]) == expected
    if family.unknown is not None:
        assert lab.encode(plain, previous=family.unknown) == expected


def test_a_piece_behind_an_added_token_begins_a_stretch(lab: TextLab, family: Family) -> None:
    plain = [line[:60].strip() for line in pages()[:20]]
    for token_id, content in family.added.items():
        alone = family.tokens(content, template=True)
        if alone != [token_id] or token_id == family.unknown:
            continue  # stands for normalized text that it never is, or for a character within a stretch
        expected = [family.tokens(content + text, template=True)[1:] for text in plain]
        assert lab.encode(plain, template=True, previous=token_id) == expected


def test_bytes_that_are_no_text_are_refused(lab: TextLab, family: Family) -> None:
    for wrong in (b"a\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"):
        with pytest.raises(DataError, match="no UTF-8"):
            lab.ask("encode_bytes", hex=wrong.hex())
    assert lab.ask("encode_bytes", hex="é 😀".encode().hex()) == family.tokens("é 😀")


def test_a_word_that_would_be_a_control_token_is_refused(lab: TextLab, tmp_path: Path) -> None:
    # Whole words are looked up before merging here, so this word would be the control token.
    document = json.loads(tokenizer_json("llama3"))
    document["model"]["vocab"]["!?!"] = 5000
    own = Tokenizer.from_bytes(json.dumps(document).encode(), json.dumps({"eos_token": "!?!"}).encode())
    (tmp_path / "tokenizer.bin").write_bytes(write_tokenizer_file(own))
    lab.open(tmp_path / "tokenizer.bin")
    with pytest.raises(DataError, match=r"special token '!\?!'"):
        lab.encode(["!?!"])
    assert lab.encode(["!?!"], template=True) == [[5000]]
