# SPDX-License-Identifier: Apache-2.0
"""From a file to the rows that a bundle ships: split, packing, what is counted, and the file that holds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from bespoke.config import JUDGED_POSITIONS
from bespoke.data.prepare import DataReport, prepare
from bespoke.data.rows import TokenRows
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from bespoke.errors import BundleError, ConfigError, DataError
from tests.support.example_encoder import ExampleEncoder


@pytest.fixture
def banking(data_folder: Path, tmp_path: Path) -> Path:
    """The first five hundred customer questions."""
    lines = (data_folder / "classification" / "banking77" / "train.csv").read_text().split("\n")[:501]
    path = tmp_path / "banking.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def texts(rows: TokenRows, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(rows.rows(i).tokens) for i in range(len(rows))]


LABELS = {"prompt": "text", "completion": "category"}


def test_a_tenth_of_the_examples_becomes_validation_and_the_seed_decides_which(banking: Path, story: Tokenizer) -> None:
    encoder = ExampleEncoder(story, None, "assistant", 256)
    first = prepare(banking, encoder, fields=LABELS, seed=1)
    report = first.report
    assert report.examples_valid == len(first.valid) == report.rows_valid == round(report.rows / 10)
    assert report.examples_train == len(first.train) == report.rows - report.examples_valid
    train, valid = set(texts(first.train, story)), set(texts(first.valid, story))
    assert not train & valid
    again, other = (prepare(banking, encoder, fields=LABELS, seed=seed) for seed in (1, 2))
    assert again.valid.to_bytes() == first.valid.to_bytes()
    assert again.train.to_bytes() == first.train.to_bytes()
    assert set(texts(other.valid, story)) != valid
    assert first.report.file == "banking.csv"
    assert report.tokens == len(first.train.tokens) + len(first.valid.tokens)
    assert report.trained_tokens == int(first.train.mask.sum()) + int(first.valid.mask.sum())


def test_an_example_that_comes_twice_stays_on_one_side(tmp_path: Path, story: Tokenizer) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"story number {i % 20}"}) + "\n" for i in range(100)))
    prepared = prepare(path, ExampleEncoder(story, None, "assistant", 64))
    train, valid = texts(prepared.train, story), texts(prepared.valid, story)
    assert len(train) + len(valid) == 100
    assert not set(train) & set(valid)
    assert len(valid) == 10
    path.write_text('{"text": "the same"}\n' * 5)
    assert prepare(path, ExampleEncoder(story, None, "assistant", 64)).report.examples_train == 5


def test_one_long_text_is_split_near_its_end(data_folder: Path, story: Tokenizer, tmp_path: Path) -> None:
    text = (data_folder / "text" / "tinyshakespeare" / "input.txt").read_text()[:50_000]
    path = tmp_path / "book.txt"
    path.write_text(text)
    prepared = prepare(path, ExampleEncoder(story, None, "assistant", 128))
    assert prepared.report.windows == len(prepared.train) + len(prepared.valid)
    assert len(prepared.valid) == round(prepared.report.windows / 10)
    joined = [t for part in (prepared.train, prepared.valid) for i in range(len(part)) for t in part.rows(i).tokens[1:]]
    assert joined == [*story.encode(text), story.eos_id]
    assert max(len(prepared.train.rows(i).tokens) for i in range(len(prepared.train))) == 129


def test_no_more_is_held_out_than_the_gate_looks_at(data_folder: Path, story: Tokenizer, tmp_path: Path) -> None:
    """Many examples and one long text: the rest is trained on."""
    book = (data_folder / "text" / "tinyshakespeare" / "input.txt").read_text()[:300_000]
    encoder = ExampleEncoder(story, None, "assistant", 64)
    lines = "".join(json.dumps({"text": line}) + "\n" for line in book.split("\n") if len(line) > 20)
    for name, content in (("book.txt", book), ("lines.jsonl", lines)):
        path = tmp_path / name
        path.write_text(content)
        prepared = prepare(path, encoder)
        held_out = len(prepared.valid.tokens) - len(prepared.valid)
        assert JUDGED_POSITIONS - 200 < held_out <= JUDGED_POSITIONS, name
        assert prepared.report.tokens == len(prepared.train.tokens) + len(prepared.valid.tokens) > 20 * JUDGED_POSITIONS


def test_rows_without_anything_to_train_are_dropped_and_counted(
    data_folder: Path, tmp_path: Path, qwen: Tokenizer, qwen_turns: Turns
) -> None:
    lines = (data_folder / "text" / "wikitext-2" / "valid.txt").read_text().split("\n")[:60]
    path = tmp_path / "wiki.jsonl"
    path.write_text("".join(json.dumps({"text": line.strip()}) + "\n" for line in lines))
    empty = sum(not line.strip() for line in lines)
    report = prepare(path, ExampleEncoder(qwen, None, "assistant", 64)).report
    assert sum(report.dropped.values()) == empty > 0
    assert report.rows == report.examples_train + report.examples_valid + empty
    path.write_text(
        json.dumps({"messages": [{"role": "user", "content": "a"}]})
        + "\n"
        + json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
        + "\n"
    )
    report = prepare(path, ExampleEncoder(qwen, qwen_turns, "assistant", 64)).report
    assert list(report.dropped.values()) == [1]
    assert "assistant" in next(iter(report.dropped))


def test_a_file_of_which_nothing_is_trained_is_refused_with_the_first_reason(
    tmp_path: Path, qwen: Tokenizer, qwen_turns: Turns
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "a"}]}\n' * 3)
    with pytest.raises(DataError, match=r"a\.jsonl, row 1.*train_on='user'"):
        prepare(path, ExampleEncoder(qwen, qwen_turns, "assistant", 64))
    path.write_text("")
    with pytest.raises(DataError, match="no rows"):
        prepare(path, ExampleEncoder(qwen, qwen_turns, "assistant", 64))


def test_an_error_in_a_row_names_file_row_and_message(tmp_path: Path, qwen: Tokenizer, qwen_turns: Turns) -> None:
    path = tmp_path / "a.jsonl"
    good = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    bad = {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]}
    path.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    with pytest.raises(DataError) as caught:
        prepare(path, ExampleEncoder(qwen, qwen_turns, "assistant", 64))
    assert caught.value.subject == f"{path}, row 2.messages[1].role"


def test_preferences_are_refused_for_a_bundle(tmp_path: Path, story: Tokenizer) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 3)
    with pytest.raises(DataError, match=r"a\.jsonl, row 1: got a chosen and a rejected answer.*as the completion"):
        prepare(path, ExampleEncoder(story, None))


def test_truncation_is_counted(data_folder: Path, qwen: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        json.dumps({"prompt": "word " * 40, "completion": "yes"}) + "\n" + '{"prompt": "a", "completion": "b"}\n'
    )
    report = prepare(path, ExampleEncoder(qwen, None, "assistant", 16)).report
    assert report.truncated_examples == 1
    assert report.truncated_tokens == len(qwen.encode("word " * 40)) + 2 - 17


def test_packing_joins_whole_texts_and_trains_the_same_tokens(
    data_folder: Path, story: Tokenizer, tmp_path: Path
) -> None:
    path = data_folder / "personas" / "customer.messages.jsonl"
    encoder = ExampleEncoder(story, None, "assistant", 512)
    plain, packed = prepare(path, encoder), prepare(path, encoder, packing=True)
    assert packed.train.tokens.tolist() == plain.train.tokens.tolist()
    assert packed.train.mask.tolist() == plain.train.mask.tolist()
    assert len(packed.train) < len(plain.train)
    assert set(packed.train.offsets.tolist()) <= set(plain.train.offsets.tolist())
    assert np.diff(packed.train.offsets).max() <= 513
    assert packed.report.trained_tokens == plain.report.trained_tokens
    assert packed.report.rows_train == len(packed.train)
    other = tmp_path / "pairs.jsonl"
    other.write_text('{"prompt": "a", "completion": "b"}\n' * 4)
    assert prepare(other, encoder, packing=True).report.rows_train == 4  # only texts are packed


def test_the_report_reads_back_strictly(banking: Path, story: Tokenizer) -> None:
    report = prepare(banking, ExampleEncoder(story, None, "assistant", 64), fields=LABELS).report
    assert DataReport.model_validate_json(report.model_dump_json()) == report


def test_a_progress_bar_gets_each_row(banking: Path, story: Tokenizer) -> None:
    seen: list[int] = []
    report = prepare(banking, ExampleEncoder(story, None), fields=LABELS, on_row=seen.append).report
    assert seen == list(range(2, report.rows + 2))


def test_no_validation_when_none_is_asked_for(banking: Path, story: Tokenizer) -> None:
    prepared = prepare(banking, ExampleEncoder(story, None), fields=LABELS, valid_share=0)
    assert len(prepared.valid) == 0
    with pytest.raises(ConfigError, match="valid_share"):
        prepare(banking, ExampleEncoder(story, None), fields=LABELS, valid_share=1)


def test_rows_come_back_from_their_file(banking: Path, story: Tokenizer, tmp_path: Path) -> None:
    prepared = prepare(banking, ExampleEncoder(story, None), fields=LABELS)
    for rows in (prepared.train, TokenRows.from_rows([])):
        path = tmp_path / "rows.safetensors"
        rows.save(path)
        again = TokenRows.load(path)
        assert again.to_bytes() == rows.to_bytes() == path.read_bytes()
        assert len(again) == len(rows)
    oracle = safetensors.numpy.load(prepared.train.to_bytes())
    assert {name: array.dtype.name for name, array in oracle.items()} == {
        "tokens": "int32",
        "mask": "uint8",
        "offsets": "int64",
    }
    start, stop = oracle["offsets"][3:5]
    assert prepared.train.rows(3).tokens.tolist() == oracle["tokens"][start:stop].tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"more": np.zeros(3, np.int32)},
        {"mask": np.zeros(4, np.uint8)},
        {"mask": np.array([0, 1, 0, 1, 2], np.uint8)},
        {"mask": np.array([0, 1, 1, 1, 1], np.uint8)},
        {"tokens": np.array([1, 2, 3, -4, 5], np.int32)},
        {"tokens": np.arange(5, dtype=np.int64)},
        {"offsets": np.array([0, 2, 4], np.int64)},
        {"offsets": np.array([1, 2, 5], np.int64)},
        {"offsets": np.array([0, 4, 5], np.int64)},
        {"offsets": np.array([0, 7, 5], np.int64)},
        {"offsets": np.zeros(0, np.int64)},
        {"offsets": np.zeros((1, 3), np.int64)},
    ],
)
def test_a_damaged_file_of_rows_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    good = {
        "tokens": np.arange(5, dtype=np.int32),
        "mask": np.array([0, 1, 0, 1, 1], np.uint8),
        "offsets": np.array([0, 2, 5], np.int64),
    }
    assert len(TokenRows.from_arrays(good, "good")) == 2
    path = tmp_path / "train.safetensors"
    safetensors.numpy.save_file({**good, **change}, path)
    with pytest.raises(BundleError, match=r"train\.safetensors"):
        TokenRows.load(path)
    path.write_bytes(b"no such thing")
    with pytest.raises(BundleError, match=r"train\.safetensors"):
        TokenRows.load(path)
