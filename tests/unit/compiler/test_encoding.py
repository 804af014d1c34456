# SPDX-License-Identifier: Apache-2.0
"""The build's data through the core: the rows that the package `tokenizers` gives, its refusals, and a build without a core."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bespoke import Personalizer, Training
from bespoke.core import finding
from bespoke.data.prepare import Prepared, prepare
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from bespoke.errors import BespokeError, DataError, MissingDependency
from tests.support.core_rows import core
from tests.support.example_encoder import ExampleEncoder
from tests.unit.data.conftest import qwen, qwen_template, qwen_turns, story

__all__ = ["qwen", "qwen_template", "qwen_turns", "story"]


def same(ours: Prepared, theirs: Prepared) -> None:
    assert ours.train.to_bytes() == theirs.train.to_bytes()
    assert ours.valid.to_bytes() == theirs.valid.to_bytes()
    assert ours.report == theirs.report


@pytest.mark.slow
def test_files_of_every_shape_become_the_rows_that_the_tokenizers_package_gives(
    data_folder: Path, qwen: Tokenizer, qwen_turns: Turns, story: Tokenizer, tmp_path: Path
) -> None:
    lines = (data_folder / "text" / "wikitext-2" / "valid.txt").read_text().split("\n")[:300]
    book = tmp_path / "book.txt"
    book.write_text((data_folder / "text" / "tinyshakespeare" / "input.txt").read_text()[:200_000])
    wiki = tmp_path / "wiki.jsonl"
    wiki.write_text("".join(json.dumps({"text": line.strip()}) + "\n" for line in lines))  # some of them empty
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"prompt": a, "completion": b}) + "\n" for a, b in pairwise(lines)))
    chats = tmp_path / "chats.jsonl"
    words = [line for line in lines if line.strip()]
    messages = [
        [{"role": "user", "content": a}, *([{"role": "assistant", "content": b}] if number % 7 else [])]
        for number, (a, b) in enumerate(pairwise(words))
    ]
    chats.write_text("".join(json.dumps({"messages": one}) + "\n" for one in messages))
    given = (
        (story, None, "assistant", 64, 512, (book, wiki, pairs)),
        (qwen, qwen_turns, "assistant", 48, 151_936, (book, wiki, pairs, chats)),
        (qwen, qwen_turns, "all", 96, 151_936, (pairs, chats)),
    )
    for tokenizer, turns, train_on, length, vocabulary, files in given:
        oracle = ExampleEncoder(tokenizer, turns, train_on, length, vocab_size=vocabulary)  # type: ignore[arg-type]
        with core(tmp_path, tokenizer, turns, train_on, length, vocabulary) as encoder:
            for file in files:
                same(prepare(file, encoder, seed=3), prepare(file, oracle, seed=3))


def test_a_row_that_cannot_be_used_is_refused_with_file_and_row_and_the_next_one_is_encoded(
    qwen: Tokenizer, qwen_turns: Turns, tmp_path: Path
) -> None:
    oracle = ExampleEncoder(qwen, qwen_turns, "assistant", 32, vocab_size=151_936)
    bad: list[Any] = [
        {"messages": [{"role": "tool", "content": "a"}]},
        {"text": 7},
        {"prompt": "a", "completion": ["b"]},
        {"words": "a"},
        [],
        {"tokens": [151_936]},
        {"tokens": [1, 2], "mask": [1]},
    ]
    no_json: list[Any] = [{"text": "half \ud83d of a character"}, {"tokens": [float("nan")]}]
    with core(tmp_path, qwen, qwen_turns, "assistant", 32, 151_936) as encoder:
        for example in bad + no_json:
            with pytest.raises(DataError) as theirs:
                oracle.encode(example, "a.jsonl, row 3")
            with pytest.raises(DataError) as ours:
                encoder.try_encode(example, "a.jsonl, row 3")
            assert ours.value.subject.startswith("a.jsonl, row 3")
            if example in bad:
                assert ours.value.args == theirs.value.args
        assert encoder.try_encode({"tokens": [1, 2, 3]}, "a").tokens == 3


def test_a_bundle_for_token_ids_only_takes_rows_of_token_ids(tmp_path: Path) -> None:
    with core(tmp_path, None, None, "assistant", 8, 100) as encoder:
        (row,) = encoder.try_encode({"tokens": [5, 6, 7, 8], "mask": [1, 0, 1, 1]}, "a").rows
        assert (row.tokens.tolist(), row.mask.tolist()) == ([5, 6, 7, 8], [0, 0, 1, 1])
        with pytest.raises(DataError, match="takes token ids only"):
            encoder.try_encode({"text": "a"}, "a")


def test_a_core_that_dies_is_no_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "core"
    program.write_text('#!/bin/sh\nread line\necho \'{"event": "report", "report": {}}\'\nread line\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv(finding.OVERRIDE, str(program))
    with (
        core(tmp_path, None, None, "assistant", 8, 100) as encoder,
        pytest.raises(BespokeError, match="an end with status 3"),
    ):
        encoder.try_encode({"tokens": [1, 2]}, "a")


@pytest.mark.slow
def test_without_a_core_data_is_refused_with_what_to_run_and_the_default_builds(
    monkeypatch: pytest.MonkeyPatch, stories: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv(finding.OVERRIDE, str(tmp_path / "none"))
    data = tmp_path / "a.jsonl"
    data.write_text('{"text": "Once upon a time"}\n' * 4)
    training = Training(sequence_lengths=(16,), steps=2)
    with pytest.raises(MissingDependency, match=r"device core.*no file.*bespoke-core"):
        Personalizer(stories, "mesp", data=data, training=training).build(tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
    Personalizer(stories, "mesp", training=training).build(tmp_path / "bundle")
