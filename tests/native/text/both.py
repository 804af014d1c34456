# SPDX-License-Identifier: Apache-2.0
"""The core's encoder and Python's, of one model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.errors import DataError
from tests.native.text.lab import TextLab
from tests.native.text.oracle import QWEN
from tests.support.example_encoder import ExampleEncoder
from tests.support.trained_tokenizers import config_of, tokenizer_json
from tests.unit.data import templates

Row = tuple[list[int], list[int]]
ALL = 1 << 20  # positions: nothing is too long


GIVEN = {"qwen": ("qwen2", QWEN), "zephyr": ("llama2", templates.ZEPHYR), "llama2": ("llama3", templates.LLAMA2)}


class Both:
    """The core's encoder and Python's, which have to give the same."""

    def __init__(self, lab: TextLab, family: str, template: str, path: Any) -> None:
        self.own = Tokenizer.from_bytes(tokenizer_json(family), json.dumps(config_of(family)).encode(), family)
        self.turns = compile_turns(template, self.own.special_tokens)
        (path / "tokenizer.bin").write_bytes(write_tokenizer_file(self.own, family))
        lab.open(path / "tokenizer.bin")
        lab.ask("turns", document=self.turns.to_bytes().decode())
        self.lab = lab
        # A space of Llama-2's glue and the beginning of a question are one token or two, as the glue before it is.
        self.exact = template != templates.LLAMA2

    def trained_text(self, row: Row) -> str:
        """What is trained on, without spaces: tokenizers put one before a text."""
        return self.own.decode(
            [token for token, trained in zip(*row, strict=True) if trained], skip_special=False
        ).replace(" ", "")

    def rows(self, example: dict[str, Any], train_on: Any, max_length: int) -> tuple[list[Row], int, int]:
        """Tokens and mask of each row, and the two counts of what was left out."""
        found = self.lab.ask("example", example=example, train_on=train_on, max_length=max_length)
        rows = [(tokens, mask) for tokens, mask in found["rows"]]
        ours = ExampleEncoder(self.own, self.turns, train_on, max_length).encode(example)
        counts = (found["truncated_tokens"], found["truncated_trained_tokens"])
        assert [(row.tokens.tolist(), row.mask.tolist()) for row in ours.rows] == rows, (example, max_length)
        assert (ours.truncated_tokens, ours.truncated_trained_tokens) == counts
        assert ours.windows == found["windows"] == len(rows)
        sums = sum(len(tokens) for tokens, _ in rows), sum(sum(mask) for _, mask in rows)
        assert (ours.tokens, ours.trained_tokens) == (found["tokens"], found["trained_tokens"]) == sums
        assert all(len(tokens) <= max_length + 1 and not mask[0] for tokens, mask in rows)
        return rows, *counts

    def encode(self, example: dict[str, Any], train_on: Any, max_length: int) -> tuple[list[int], list[int], int, int]:
        """The same of an example that has one row."""
        ((tokens, mask),), truncated, truncated_trained = self.rows(example, train_on, max_length)
        return tokens, mask, truncated, truncated_trained

    def try_encode(self, example: dict[str, Any], train_on: Any) -> tuple[list[int], list[int]] | None:
        try:
            return self.encode(example, train_on, ALL)[:2]
        except DataError:
            return None

    def refusal(self, example: dict[str, Any], train_on: Any = "assistant") -> DataError:
        """What both say of an example that they refuse: the same."""
        found = []
        encoder = ExampleEncoder(self.own, self.turns, train_on, ALL)
        for refuse in (
            lambda: self.lab.ask("example", example=example, train_on=train_on),
            lambda: encoder.encode(example),
        ):
            with pytest.raises(DataError) as caught:
                refuse()
            found.append(caught.value)
        assert found[0].args == found[1].args
        return found[0]
