# SPDX-License-Identifier: Apache-2.0
"""Long texts: refused by their size before any work, tokenized as one whole, in work that grows with the text and no faster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from bespoke import PersonalModel
from bespoke.errors import DataError
from tests.support import reading
from tests.support.bundles import stories_bundle

__all__ = ["stories_bundle"]

LARGEST = 16 * 2**20  # bytes of an example's JSON: docs/how_to/collect_examples.md


@pytest.fixture
def model(stories_bundle: Path, tmp_path: Path) -> Iterator[PersonalModel]:
    with PersonalModel.open(stories_bundle, tmp_path / "state") as opened:
        yield opened


@pytest.fixture(scope="module")
def wiki(data_folder: Path) -> str:
    return (data_folder / "text" / "wikitext-2" / "train.txt").read_text()


def stored_tokens(state: Path, id: str) -> list[int]:
    """Trained tokens of all rows of an example, as SQLite finds them."""
    query = f"SELECT r.tokens, r.mask FROM example_rows r JOIN examples e ON e.key = r.example WHERE e.id = '{id}' ORDER BY r.row"
    return [
        int(token)
        for tokens, mask in reading.select(state, query)
        for token, trained in zip(np.frombuffer(bytes.fromhex(tokens), "<i4"), bytes.fromhex(mask), strict=True)
        if trained
    ]


@pytest.mark.parametrize(
    "unlike", ["", "café 🙂 日本 \x00", "\n" * 40, "<unk></s>"], ids=["plain", "unknown", "lines", "special"]
)
def test_a_long_text_is_tokenized_as_the_tokenizers_package_does_it_whole(
    model: PersonalModel, stories: Path, wiki: str, tmp_path: Path, unlike: str
) -> None:
    oracle = tokenizers.Tokenizer.from_file(str(stories / "tokenizer.json"))
    oracle.encode_special_tokens = True  # a user's words are words
    text = unlike.join(wiki[at : at + 1000] for at in range(0, 300_000, 1000))
    model.examples.add({"text": text}, id="long")
    end = oracle.token_to_id("</s>")
    assert stored_tokens(tmp_path / "state", "long") == [*oracle.encode(text, add_special_tokens=False).ids, end]


TOO_LARGE: list[dict[str, Any]] = [
    {"tokens": [10**9] * 1_700_000},
    {"text": "a" * LARGEST, "no such": [1] * 10},
    {"messages": [{"role": "robot", "content": "a" * LARGEST}]},
    {"prompt": 3, "completion": "a" * LARGEST},
]


@pytest.mark.parametrize("example", TOO_LARGE, ids=["tokens", "text", "messages", "pair"])
def test_what_is_too_large_is_refused_for_its_size_and_not_for_what_tokenizing_finds(
    model: PersonalModel, example: dict[str, Any]
) -> None:
    with pytest.raises(DataError, match="bytes of JSON") as refused:
        model.examples.add(example)
    assert str(LARGEST) in refused.value.expected
    assert len(model.examples) == 0


def test_the_work_of_adding_a_text_grows_with_the_text(model: PersonalModel, wiki: str) -> None:
    """Calls of functions, Python's and C's, counted by the interpreter."""
    calls = {}
    for size in (20_000, 80_000, 320_000):
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        text = wiki[:size]
        sys.setprofile(counted)
        try:
            model.examples.add({"text": text})
        finally:
            sys.setprofile(None)
        calls[size] = count
    assert calls[80_000] < 4.2 * calls[20_000]
    assert calls[320_000] < 4.2 * calls[80_000]
