# SPDX-License-Identifier: Apache-2.0
"""What `verify` asks of a device holds for every kind of tokenizer: the golden texts become their tokens, and these a text that
becomes them again."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bespoke.data.text import Tokenizer
from bespoke.golden.texts import golden_texts
from tests.native.text.lab import TextLab
from tests.support.tokenizer_families import FAMILIES, Family
from tests.support.trained_tokenizers import TRAINED, config_of, loses


@pytest.mark.parametrize("name", FAMILIES)
def test_golden_texts_come_back(family_of: Callable[[str], Family], lab: TextLab, name: str) -> None:
    family = family_of(name)
    lab.open(family.path)
    config = json.dumps(config_of(name)).encode() if name in TRAINED else None
    texts = golden_texts(Tokenizer.from_bytes(family.data, config, name), 0)
    tokens = lab.encode([text.text for text in texts])
    assert tokens == [text.ids for text in texts]
    streamed = ["".join(pieces) for pieces in lab.stream(tokens)]
    assert streamed == lab.decode(tokens, skip_special=True)
    for text, back, ids, again in zip(texts, streamed, tokens, lab.encode(streamed), strict=True):
        assert back == text.text or again == ids or family.without_stripped(text.text) == back or loses(name, text.text)
    assert sum(loses(name, text.text) for text in texts) < len(texts) * 0.9
