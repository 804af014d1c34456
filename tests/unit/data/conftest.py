# SPDX-License-Identifier: Apache-2.0
"""The two real tokenizers, ours and the package's own; conversations made of real messages."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from tests.support.tokenizer_families import family_of

__all__ = ["family_of"]

Messages = list[dict[str, str]]


@pytest.fixture(scope="session")
def qwen(data_folder: Path) -> Tokenizer:
    return Tokenizer.open(data_folder / "tokenizers" / "qwen2.5" / "tokenizer.json")


@pytest.fixture(scope="session")
def qwen_oracle(data_folder: Path) -> Any:
    return tokenizers.Tokenizer.from_file(str(data_folder / "tokenizers" / "qwen2.5" / "tokenizer.json"))


@pytest.fixture(scope="session")
def story(stories: Path) -> Tokenizer:
    return Tokenizer.open(stories / "tokenizer.json")


@pytest.fixture(scope="session")
def story_oracle(stories: Path) -> Any:
    return tokenizers.Tokenizer.from_file(str(stories / "tokenizer.json"))


@pytest.fixture(scope="session")
def qwen_template(data_folder: Path) -> str:
    config = data_folder / "tokenizers" / "qwen2.5" / "tokenizer_config.json"
    template: str = json.loads(config.read_text())["chat_template"]
    return template


@pytest.fixture(scope="session")
def qwen_turns(qwen: Tokenizer, qwen_template: str) -> Turns:
    return compile_turns(qwen_template, qwen.special_tokens)


@pytest.fixture(scope="session")
def persona_lines(data_folder: Path) -> list[str]:
    files = sorted((data_folder / "personas").glob("*.messages.jsonl"))
    return [json.loads(line)["text"] for file in files for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def cases(data_folder: Path) -> Path:
    """Small inputs of kinds that people report, next to the folder of test data."""
    folder = data_folder.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"no inputs at {folder}")
    return folder


def conversation(chance: random.Random, lines: list[str]) -> Messages:
    """Between one and four exchanges, half of the time behind a system message; whitespace at some of the ends."""
    messages = [{"role": "system", "content": "  Be brief.\n"}] if chance.random() < 0.5 else []
    for _ in range(chance.randint(1, 4)):
        question = chance.choice(lines)[: chance.randint(1, 200)] + chance.choice(["", " ", "\n"])
        answer = chance.choice(["", " "]) + chance.choice(lines)[: chance.randint(1, 200)]
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages
