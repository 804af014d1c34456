# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of harmless learning teaches and asks: facts of three invented persons, and prompts that nothing trains on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.personas import questions, read_jsonl

FOLDER = Path(__file__).with_name("harmless")
SHORT = 3


@dataclass(frozen=True)
class Fact:
    """A question with its right answers, of which the first is taught, and the same question in words that are never taught."""

    question: str
    answers: tuple[str, ...]
    wordings: tuple[str, ...]

    def is_in(self, answer: str) -> bool:
        """Whether a right answer stands in `answer`. A short one, such as a number, has to stand there as a word."""
        said = _plain(answer)
        return any(
            f" {right} " in f" {said} " or (len(right) > SHORT and right in said) for right in map(_plain, self.answers)
        )


def facts(data_folder: Path, persona: str) -> list[Fact]:
    wordings = {
        row["question"]: tuple(row["wordings"])
        for row in read_jsonl(FOLDER / "wordings.jsonl")
        if row["persona"] == persona
    }
    return [
        Fact(row["question"], tuple(row["answers"]), wordings[row["question"]])
        for row in questions(data_folder, persona)
    ]


def lines(name: str) -> list[str]:
    """The lines of a text file of this benchmark."""
    return [line for line in (FOLDER / name).read_text(encoding="utf-8").splitlines() if line.strip()]


@dataclass(frozen=True)
class Asked:
    """How a model is asked. A chat model gets turns, a base model gets text."""

    gguf: Path
    chats: bool

    @property
    def ends(self) -> frozenset[int]:
        """The tokens that end an answer."""
        names = ("<|im_end|>", "<|endoftext|>") if self.chats else ("<eos>", "<end_of_turn>")
        return frozenset(_tokenizer(self.gguf).convert_tokens_to_ids(name) for name in names)

    @property
    def end(self) -> int:
        return int(_tokenizer(self.gguf).convert_tokens_to_ids("<|im_end|>" if self.chats else "<eos>"))

    def example(self, fact: Fact) -> dict[str, Any]:
        """The fact as an app adds it."""
        if self.chats:
            turns = (("user", fact.question), ("assistant", fact.answers[0]))
            return {"messages": [{"role": role, "content": content} for role, content in turns]}
        return {"prompt": _in_text(fact.question), "completion": f" {fact.answers[0]}"}

    def about(self, question: str) -> list[int]:
        """The tokens that ask for a fact."""
        return self.prompt(question if self.chats else _in_text(question))

    def prompt(self, words: str) -> list[int]:
        """The tokens that ask for an answer, by the tokenizer and the template of transformers."""
        tokenizer = _tokenizer(self.gguf)
        if self.chats:
            turns = [{"role": "user", "content": words}]
            words = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        begin = [] if self.chats else [tokenizer.bos_token_id]
        return [*begin, *tokenizer(words, add_special_tokens=False).input_ids]


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def _in_text(question: str) -> str:
    return f"Question: {question}\nAnswer:"


@cache
def _tokenizer(gguf: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
