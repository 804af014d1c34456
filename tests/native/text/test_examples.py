# SPDX-License-Identifier: Apache-2.0
"""Examples to rows in the core: windows, pairs, token ids, and what goes where there is no room; tokens by the package itself."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from bespoke.errors import DataError
from tests.native.text.lab import TextLab
from tests.support.checks import count, new_seed
from tests.support.tokenizer_families import Family
from tests.support.trained_tokenizers import pages

Family_of = Callable[[str], Family]
TEXT = "".join(pages()[:40])


@pytest.fixture
def story(lab: TextLab, family_of: Family_of) -> Family:
    """Begins texts with bos."""
    family = family_of("llama2")
    lab.open(family.path)
    return family


@pytest.fixture
def qwen(lab: TextLab, family_of: Family_of) -> Family:
    """Begins texts with nothing."""
    family = family_of("qwen2")
    lab.open(family.path)
    return family


def rows_of(lab: TextLab, example: Any, **settings: Any) -> list[tuple[list[int], list[int]]]:
    encoded = lab.ask("example", example=example, without_turns=True, **settings)
    rows = [(tokens, mask) for tokens, mask in encoded["rows"]]
    assert encoded["tokens"] == sum(len(tokens) for tokens, _ in rows)
    assert encoded["trained_tokens"] == sum(sum(mask) for _, mask in rows)
    assert encoded["windows"] == len(rows)
    assert all(len(tokens) == len(mask) >= 2 and mask[0] == 0 for tokens, mask in rows)
    return rows


def only(rows: list[tuple[list[int], list[int]]]) -> tuple[list[int], list[int]]:
    (row,) = rows
    return row


@pytest.mark.parametrize("max_length", [1, 2, 7, 64, 4096])
def test_windows_with_bos_joined_give_the_whole_text(lab: TextLab, story: Family, max_length: int) -> None:
    rows = rows_of(lab, {"text": TEXT}, max_length=max_length)
    assert all(tokens[0] == story.bos and len(tokens) <= max_length + 1 and all(mask[1:]) for tokens, mask in rows)
    assert [token for tokens, _ in rows for token in tokens[1:]] == [*story.tokens(TEXT), story.eos]
    assert all(len(tokens) == max_length + 1 for tokens, _ in rows[:-1])


@pytest.mark.parametrize("max_length", [1, 2, 7, 64, 4096])
def test_windows_without_bos_begin_with_the_last_token_before(lab: TextLab, qwen: Family, max_length: int) -> None:
    rows = rows_of(lab, {"text": TEXT}, max_length=max_length)
    assert all(len(tokens) <= max_length + 1 and all(mask[1:]) for tokens, mask in rows)
    assert all(one[0][-1] == other[0][0] for one, other in itertools.pairwise(rows))
    assert rows[0][0][:1] + [token for tokens, _ in rows for token in tokens[1:]] == [*qwen.tokens(TEXT), qwen.eos]


def test_a_prompt_and_its_completion_read_as_one_text(lab: TextLab, story: Family) -> None:
    tokens, mask = only(rows_of(lab, {"prompt": "Once upon", "completion": " a time"}))
    prompt = [story.bos, *story.tokens("Once upon")]
    assert lab.ask("prompt", prompt="Once upon") == prompt
    assert tokens[: len(prompt)] == prompt
    assert mask == [0] * len(prompt) + [1] * (len(tokens) - len(prompt))
    assert tokens[-1] == story.eos
    assert story.oracle.decode(tokens, skip_special_tokens=True) == "Once upon a time"
    everything = only(rows_of(lab, {"prompt": "Once upon", "completion": " a time"}, train_on="all"))
    assert everything == (tokens, [0] + [1] * (len(tokens) - 1))
    alone, _ = only(rows_of(lab, {"prompt": "", "completion": "a time"}))
    assert alone == [story.bos, *story.tokens("a time"), story.eos]


@pytest.mark.parametrize("train_on", ["assistant", "all"])
def test_a_preference_is_a_row_with_the_rejected_answer_behind_the_same_prompt(
    lab: TextLab, story: Family, train_on: str
) -> None:
    example = {"prompt": "Once upon", "chosen": " a time", "rejected": " another day, long ago"}
    encoded = lab.ask("example", example=example, without_turns=True, train_on=train_on)
    ((tokens, mask, rejected, rejected_mask),) = encoded["rows"]
    prompt = [story.bos, *story.tokens("Once upon")]
    for answer, row, trained in ((" a time", tokens, mask), (" another day, long ago", rejected, rejected_mask)):
        assert row[: len(prompt)] == prompt
        assert trained == [0] * len(prompt) + [1] * (len(row) - len(prompt))
        assert row[-1] == story.eos
        assert story.oracle.decode(row, skip_special_tokens=True) == "Once upon" + answer
        assert only(rows_of(lab, {"prompt": "Once upon", "completion": answer}))[0] == row
    assert (encoded["tokens"], encoded["trained_tokens"]) == (len(tokens), sum(mask))
    cut = lab.ask("example", example=example, without_turns=True, max_length=4)
    assert [len(part) for part in cut["rows"][0]] == [5] * 4
    assert cut["rows"][0][0][:2] == cut["rows"][0][2][:2] == [story.bos, prompt[-1]]
    assert cut["truncated_tokens"] == len(tokens) + len(rejected) - 10


def test_special_tokens_in_words_stay_words(lab: TextLab, story: Family) -> None:
    for example in ({"text": "a </s> <s> b"}, {"prompt": "a </s>", "completion": "<s> b"}):
        tokens, _ = only(rows_of(lab, example))
        assert (tokens.count(story.bos or 0), tokens.count(story.eos or 0)) == (1, 1)  # only the two around it


def test_token_ids_are_taken_as_they_are(lab: TextLab, qwen: Family) -> None:
    rows = rows_of(lab, {"tokens": [1, 5, 6, 7, 8, 9]}, max_length=3, vocabulary=512)
    assert [tokens for tokens, _ in rows] == [[1, 5, 6, 7], [7, 8, 9]]
    assert only(rows_of(lab, {"tokens": [1, 5, 6], "mask": [1, 0, 1]})) == ([1, 5, 6], [0, 0, 1])
    assert only(rows_of(lab, {"tokens": [1, 5, 6], "mask": [True, False, True]})) == ([1, 5, 6], [0, 0, 1])
    assert lab.ask("prompt", prompt=[1, 5], vocabulary=512) == [1, 5]
    for wrong in ([1, 512], [-1, 3], [1.0, 2.0], [True, 2], "12", [], None, [2**40, 1], {"a": 1}):
        with pytest.raises(DataError, match=r"example\.tokens: .*token ids from 0 to 511"):
            rows_of(lab, {"tokens": wrong}, vocabulary=512)
    for wrong_mask in ([1], [0, 2], "01", 3, [0, 1.0], [0, None]):
        with pytest.raises(DataError, match=r"example\.mask: .*2 times 0 or 1"):
            rows_of(lab, {"tokens": [1, 2], "mask": wrong_mask})


@pytest.mark.parametrize("with_bos", [False, True])
def test_a_shortened_row_trains_what_it_can(lab: TextLab, story: Family, with_bos: bool) -> None:
    """What follows the last trained token goes first, then the oldest context; bos stays; of a trained stretch that is too long,
    the beginning stays with half a row of what is before it. An older stretch is whole or not there."""
    chance = random.Random(new_seed())
    bos = story.bos
    for _ in range(count(50_000)):
        size, max_length = chance.randint(2, 40), chance.randint(1, 40)
        mask = [int(chance.random() < chance.choice((0.1, 0.5, 0.9))) for _ in range(size)]
        tokens = [bos if with_bos else 100, *range(101, 100 + size)]
        if not any(mask[1:]):
            with pytest.raises(DataError, match="nothing to train on"):
                rows_of(lab, {"tokens": tokens, "mask": mask}, max_length=max_length)
            continue
        kept, kept_mask = only(rows_of(lab, {"tokens": tokens, "mask": mask}, max_length=max_length))
        room = max_length + 1
        assert len(kept) <= room
        own = kept[1:]  # one stretch of the whole, behind bos or the token before it
        first = tokens.index(own[0])
        assert own == tokens[first : first + len(own)]
        assert kept[0] == (bos if with_bos else tokens[first - 1])
        assert kept_mask == [0, *mask[first : first + len(own)]]
        last = max(at for at in range(1, size) if mask[at])
        if size <= room:
            assert kept == tokens
        elif last <= max_length:
            assert kept == tokens[: last + 1]
        else:
            start = last
            while start - 1 >= 1 and mask[start - 1]:
                start -= 1
            answer = last + 1 - start
            prompt = min(start, room // 2 if answer >= room else room - answer)
            begin = (
                start - prompt + (with_bos and prompt < start)
            )  # the first after bos, or bos itself where nothing is lost
            while begin < start and mask[begin] and begin > 0:
                begin += 1
            begin = min(begin, start if with_bos else start - 1)
            assert (
                own == tokens[max(1, begin + (not with_bos)) : min(last + 1, begin + room - (with_bos and begin > 0))]
            )


@pytest.mark.parametrize(
    ("example", "complaint"),
    [
        ({"text": ""}, "Leave this example out"),
        ({"prompt": "a", "completion": ""}, "nothing to train on"),
        ({"tokens": [1, 2], "mask": [1, 0]}, "nothing to train on"),
        ({"tokens": [1]}, "nothing to train on"),
        (
            {"words": "a"},
            "got the keys 'words'; expected 'messages', .*'completion', 'prompt', 'chosen' and 'rejected', or 'text'",
        ),
        ({}, "got the keys none"),
        ("text", "got text; expected an object"),
        ({"text": "a", "messages": []}, r"several shapes \(messages and text\)"),
        ({"text": 3}, r"example\.text: got a number; expected text"),
        ({"prompt": "a", "completion": {"b": 1}}, r"example\.completion: got an object"),
        ({"prompt": None, "completion": "b"}, r"example\.prompt: got nothing"),
        ({"prompt": "a"}, "'prompt'"),
        ({"prompt": "a", "chosen": "b"}, "got the keys 'chosen', 'prompt'"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, r"example\.rejected: got the answer that was chosen"),
        ({"prompt": "a", "chosen": "b", "rejected": ""}, r"example\.rejected: got an answer without tokens"),
        ({"prompt": "a", "chosen": "", "rejected": "b"}, "nothing to train on"),
        ({"prompt": "a", "chosen": "b", "rejected": 3}, r"example\.rejected: got a number; expected text"),
        (
            {"prompt": "a", "chosen": "b", "rejected": "c", "completion": "d"},
            r"several shapes \(prompt_completion and pref",
        ),
        ({"messages": [{"role": "user", "content": "a"}]}, "without a chat template"),
    ],
)
def test_an_example_that_cannot_be_used_is_refused(lab: TextLab, qwen: Family, example: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        rows_of(lab, example)


def test_without_a_tokenizer_token_ids_are_taken_and_texts_refused(lab: TextLab) -> None:
    lab.ask("close")
    assert only(rows_of(lab, {"tokens": [1, 5, 6]})) == ([1, 5, 6], [0, 1, 1])
    assert lab.ask("stops") == []
    for example in (
        {"text": "hello"},
        {"prompt": "a", "completion": "b"},
        {"messages": [{"role": "user", "content": "a"}]},
    ):
        with pytest.raises(DataError, match="token ids only"):
            rows_of(lab, example)
    with pytest.raises(DataError, match="token ids only"):
        lab.ask("prompt", prompt="hello")
