# SPDX-License-Identifier: Apache-2.0
"""Tokens, merges and classes stay in the mapped file: the anonymous memory that tokenizing takes with Qwen2.5's 151,665 tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.native.lab_process import end
from tests.native.text.lab import TextLab
from tests.support.tokenizer_families import Family

MOST_BYTES = 2_000_000


def test_a_large_vocabulary_takes_little_memory(
    program: Path, family_of: Callable[[str], Family], data_folder: Path
) -> None:
    lab = TextLab(program)
    text = data_folder / "text" / "wikitext-2" / "valid.txt"
    measured = lab.ask("measure", path=str(family_of("qwen2.5").path), text=str(text), bytes=10_000)
    assert end(lab.process) == 0
    assert measured["characters"] > 1_000_000
    assert 0 < measured["anonymous_bytes"] < MOST_BYTES
