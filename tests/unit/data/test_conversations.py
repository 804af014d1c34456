# SPDX-License-Identifier: Apache-2.0
"""Random conversations through transformers' own `apply_chat_template`, for tokenizers that put a space before a text and have no
token for every character. Such a character is `<unk>`, which is an added token too, and no border between texts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer
from tests.support.example_encoder import ExampleEncoder
from tests.unit.data import templates
from tests.unit.data.conftest import Messages

MARKERS = ["<|user|>", "<|assistant|>"]
NO_MARKERS = templates.ZEPHYR  # its markers are words to the tokenizers here, unless they are added
METASPACE = {"type": "Metaspace", "replacement": "▁", "split": False}
UNKNOWN = "🙂é日"  # none of them is in the vocabulary
SEED = 20


def story_tokenizer(folder: Path, kind: str, markers: list[str], byte_fallback: bool) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text())
    data["model"]["byte_fallback"] = byte_fallback
    if kind != "prepend":
        data["normalizer"] = None
        data["pre_tokenizer"] = {**METASPACE, "prepend_scheme": kind}
    first = len(data["model"]["vocab"])
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    data["added_tokens"] += [{"id": first + n, "content": text, **plain} for n, text in enumerate(markers)]
    return data


def conversation(chance: random.Random, lines: list[str]) -> Messages:
    """Contents begin with a word or a space, and may hold and end with what the vocabulary lacks."""
    said: Messages = []
    for role in ["user", "assistant"] * chance.randint(1, 3):
        words = chance.choice(lines).split()[: chance.randint(1, 12)]
        middle = chance.choice(["", "", *UNKNOWN])
        where = chance.randint(1, len(words))
        content = " ".join([*words[:where], middle, *words[where:]]) + chance.choice(["", " ", *UNKNOWN])
        said.append({"role": role, "content": chance.choice(["", " "]) + content})
    return said


@pytest.mark.parametrize("byte_fallback", [False, True], ids=["unknown", "bytes"])
@pytest.mark.parametrize("markers", [[], MARKERS], ids=["words", "markers"])
@pytest.mark.parametrize("kind", ["prepend", "first", "always", "never"])
def test_conversations_are_tokenized_as_transformers_does(
    stories: Path, persona_lines: list[str], tmp_path: Path, kind: str, markers: list[str], byte_fallback: bool
) -> None:
    from transformers import PreTrainedTokenizerFast

    (tmp_path / "tokenizer.json").write_text(json.dumps(story_tokenizer(stories, kind, markers, byte_fallback)))
    (tmp_path / "tokenizer_config.json").write_bytes((stories / "tokenizer_config.json").read_bytes())
    oracle = PreTrainedTokenizerFast.from_pretrained(tmp_path, chat_template=templates.ZEPHYR)
    own = Tokenizer.open(tmp_path)
    encoder = ExampleEncoder(own, compile_turns(templates.ZEPHYR, own.special_tokens), "all", 8192)
    chance = random.Random(SEED)
    unknown = 0
    for _ in range(60):
        messages = conversation(chance, persona_lines)
        (row,) = encoder.encode({"messages": messages}).rows
        assert row.tokens.tolist() == oracle.apply_chat_template(messages, tokenize=True, return_dict=False), messages
        asked = encoder.prompt_ids(messages[:-1])
        expected = oracle.apply_chat_template(
            messages[:-1], tokenize=True, return_dict=False, add_generation_prompt=True
        )
        assert asked == expected, messages
        unknown += 0 in asked
    assert (unknown > 30) == (not byte_fallback)
