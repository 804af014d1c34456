# SPDX-License-Identifier: Apache-2.0
"""The core's tokenizer: characters a second of one core, and the anonymous memory that it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.native.conftest import native_build
from tests.native.lab_process import end
from tests.native.text.lab import TextLab
from tests.support.trained_tokenizers import config_of, tokenizer_json

from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file

__all__ = ["native_build"]

LEAST_RATE = 3e6  # characters a second


@pytest.mark.benchmark
def test_millions_of_characters_a_second(native_build: Path, stories: Path, data_folder: Path, tmp_path: Path) -> None:
    tokenizers = {
        "Qwen2.5": Tokenizer.open(data_folder / "tokenizers" / "qwen2.5"),
        "stories260K": Tokenizer.open(stories),
        "Llama 3's pattern, trained on a few pages": Tokenizer.from_bytes(
            tokenizer_json("llama3"), json.dumps(config_of("llama3")).encode()
        ),
    }
    text = data_folder / "text" / "wikitext-2" / "train.txt"
    rows: list[list[Cell]] = []
    for name, tokenizer in tokenizers.items():
        path = tmp_path / f"{name}.bin"
        path.write_bytes(write_tokenizer_file(tokenizer))
        for size in (200, 10_000, 1_000_000):
            lab = TextLab(native_build / "tests" / "text_lab")
            measured = lab.ask("measure", path=str(path), text=str(text), bytes=size)
            assert end(lab.process) == 0
            rate = measured["characters"] / measured["seconds"]
            memory = (path.stat().st_size / 1e6, measured["anonymous_bytes"] / 1e6)
            rows.append([name, tokenizer.vocab_size, size, rate / 1e6, *memory])
            print(rows[-1], flush=True)
            assert rate > LEAST_RATE or name != "Qwen2.5", rows[-1]
    write_table(
        "tokenizing",
        ("tokenizer", "tokens", "bytes at a time", "million characters a second", "MB mapped", "MB anonymous"),
        rows,
        "WikiText-2's training text, encoded by one thread in pieces of whole lines. The memory includes a piece and its tokens.",
    )
