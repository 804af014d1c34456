# SPDX-License-Identifier: Apache-2.0
"""Ends of texts, and pairs as turns of a chat."""

from __future__ import annotations

from typing import Any

import pytest

from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from bespoke.errors import DataError
from tests.support.example_encoder import ExampleEncoder, TrainOn


def only(encoder: ExampleEncoder, example: dict[str, Any]) -> tuple[list[int], list[int]]:
    (row,) = encoder.encode(example).rows
    return row.tokens.tolist(), row.mask.tolist()


def test_a_text_ends_with_the_end_token_unless_it_goes_on(story: Tokenizer) -> None:
    encoder = ExampleEncoder(story, None, "assistant", 64)
    words = [story.bos_id, *story.encode("Once upon a time")]
    assert only(encoder, {"text": "Once upon a time"}) == ([*words, story.eos_id], [0] + [1] * len(words))
    assert only(encoder, {"text": "Once upon a time", "end": "none"}) == (words, [0] + [1] * (len(words) - 1))
    with pytest.raises(DataError, match=r"example.end: got 'never'; expected 'none', or no such key"):
        encoder.encode({"text": "Once", "end": "never"})


@pytest.mark.parametrize("train_on", ["assistant", "user", "all"])
def test_a_pair_is_a_turn_of_the_chat_where_there_is_one(qwen: Tokenizer, qwen_turns: Turns, train_on: TrainOn) -> None:
    encoder = ExampleEncoder(qwen, qwen_turns, train_on, 256)
    pair = {"prompt": "Where is the key?", "completion": "Under the pot."}
    messages = [{"role": "user", "content": pair["prompt"]}, {"role": "assistant", "content": pair["completion"]}]
    tokens, mask = only(encoder, pair)
    as_chat = ExampleEncoder(qwen, qwen_turns, "all" if train_on == "all" else "assistant", 256)
    whole_tokens, whole_mask = only(as_chat, {"messages": messages})
    end = len(whole_mask) - whole_mask[::-1].index(1)
    assert (tokens, mask) == (whole_tokens[:end], whole_mask[:end])
    assert tokens[: len(encoder.prompt_ids(messages[:1]))] == encoder.prompt_ids(messages[:1])
    assert tokens[-1] in encoder.stop_ids()


def test_a_pair_stays_a_text_where_it_says_so(qwen: Tokenizer, qwen_turns: Turns) -> None:
    pair = {"prompt": "Once upon", "completion": " a time"}
    in_chat, alone = ExampleEncoder(qwen, qwen_turns), ExampleEncoder(qwen, None)
    assert only(in_chat, {**pair, "as": "text"}) == only(alone, pair) == only(alone, {**pair, "as": "text"})
    with pytest.raises(DataError, match=r"example.as: got 'chat'; expected 'text'"):
        in_chat.encode({**pair, "as": "chat"})


def test_a_long_pair_keeps_its_answer_and_the_end_of_its_question(qwen: Tokenizer, qwen_turns: Turns) -> None:
    encoder = ExampleEncoder(qwen, qwen_turns, "assistant", 32)
    encoded = encoder.encode({"prompt": "word " * 100 + "last?", "completion": "Under the pot."})
    (row,) = encoded.rows
    assert len(row.tokens) == 33
    assert qwen.decode(row.tokens[row.mask == 1].tolist(), False) == "Under the pot.<|im_end|>"
    assert qwen.decode(row.tokens.tolist()).endswith("last?\nassistant\nUnder the pot.")
    assert encoded.truncated_tokens > 60
    assert encoded.truncated_trained_tokens == 0


@pytest.mark.parametrize("words", [{"prompt": 3, "completion": "a"}, {"prompt": "a", "completion": None}])
def test_words_of_a_pair_are_text(qwen: Tokenizer, qwen_turns: Turns, words: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="expected text"):
        ExampleEncoder(qwen, qwen_turns).encode(words)
