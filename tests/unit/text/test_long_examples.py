# SPDX-License-Identifier: Apache-2.0
"""Examples longer than the longest sequence, by both encoders: which turns stay, found here by trying each one; and that
nothing is lost that is not counted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from bespoke.data.encode import ExampleEncoder
from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer
from bespoke.errors import DataError
from tests.checks import count, new_seed
from tests.unit.data import templates
from tests.unit.text.lab import TextLab
from tests.unit.text.test_turns import QWEN
from tests.unit.text.trained import config_of, pages, tokenizer_json

Messages = list[dict[str, str]]
EXAMPLES = 1_500
ALL = 1 << 20
LINES = [line.strip() for line in pages()[:40] if line.strip()]


class Both:
    """The core's encoder and Python's, which have to give the same."""

    def __init__(self, lab: TextLab, family: str, template: str, path: Any) -> None:
        from bespoke.data.tokenizer_file import write_tokenizer_file

        self.own = Tokenizer.from_bytes(tokenizer_json(family), json.dumps(config_of(family)).encode(), family)
        self.turns = compile_turns(template, self.own.special_tokens)
        (path / "tokenizer.bin").write_bytes(write_tokenizer_file(self.own, family))
        lab.open(path / "tokenizer.bin")
        lab.ask("turns", document=self.turns.to_bytes().decode())
        self.lab = lab

    def encode(self, example: dict[str, Any], train_on: Any, max_length: int) -> tuple[list[int], list[int], int, int]:
        """Tokens and mask of the one row, and the two counts of what was left out."""
        found = self.lab.ask("example", example=example, train_on=train_on, max_length=max_length)
        ((tokens, mask),) = found["rows"]
        ours = ExampleEncoder(self.own, self.turns, train_on, max_length).encode(example)
        (row,) = ours.rows
        counts = (found["truncated_tokens"], found["truncated_trained_tokens"])
        assert (row.tokens.tolist(), row.mask.tolist()) == (tokens, mask), example
        assert (ours.truncated_tokens, ours.truncated_trained_tokens) == counts
        assert (ours.tokens, ours.trained_tokens) == (found["tokens"], found["trained_tokens"]) == (len(tokens), sum(mask))
        assert len(tokens) <= max_length + 1
        return tokens, mask, *counts

    def try_encode(self, example: dict[str, Any], train_on: Any) -> tuple[list[int], list[int]] | None:
        try:
            return self.encode(example, train_on, ALL)[:2]
        except DataError:
            return None


GIVEN = {"qwen": ("qwen2", QWEN), "zephyr": ("llama2", templates.ZEPHYR), "llama2": ("llama3", templates.LLAMA2)}


@pytest.fixture(params=GIVEN)
def both(request: pytest.FixtureRequest, lab: TextLab, tmp_path: Any) -> Both:
    return Both(lab, *GIVEN[request.param], tmp_path)


def conversation(chance: random.Random) -> Messages:
    messages = []
    if chance.random() < 0.4:
        messages.append({"role": "system", "content": chance.choice(LINES)[: chance.randint(1, 60)]})
    for _ in range(chance.randint(1, 6)):
        for role in ("user", "assistant"):
            words = " ".join(chance.choices(LINES, k=2))[: chance.randint(1, 120)].strip()
            messages.append({"role": role, "content": words or "x"})
    return messages if chance.random() < 0.7 else messages[:-1] if len(messages) > 2 else messages


def end_of(mask: list[int]) -> int:
    return max(at for at in range(len(mask)) if mask[at]) + 1


@pytest.mark.parametrize("train_on", ["assistant", "user", "all"])
def test_the_oldest_turns_go_as_a_whole(both: Both, train_on: str) -> None:
    seed, examples = new_seed(), count(EXAMPLES)
    chance = random.Random(seed)
    cut = dropped = 0
    for _ in range(examples):
        messages, max_length = conversation(chance), chance.randint(4, 150)
        room = max_length + 1
        whole = both.try_encode({"messages": messages}, train_on)
        if whole is None:
            continue
        tokens, mask, truncated, truncated_trained = both.encode({"messages": messages}, train_on, max_length)
        assert (len(tokens) + truncated, sum(mask) + truncated_trained) == (len(whole[0]), sum(whole[1]))
        if len(whole[0]) <= room:
            assert (tokens, mask) == whole
            continue
        first = int(messages[0]["role"] == "system")
        starts = [0, *(i for i in range(first + 1, len(messages)) if messages[i]["role"] == "user" or train_on == "user")]
        rows = [both.try_encode({"messages": messages[:first] + messages[max(i, first) :]}, train_on) for i in starts]
        rows = [row for row in rows if row is not None]
        fitting = next((row for row in rows if end_of(row[1]) <= room), None)
        if fitting is not None:
            dropped += 1
            end = end_of(fitting[1])
            assert tokens[:end] == fitting[0][:end], (messages, max_length)
            assert mask == fitting[1][: len(mask)]
            assert len(tokens) == (len(fitting[0]) if len(fitting[0]) <= room else end)
            continue
        cut += 1
        last, last_mask = rows[-1]
        end = end_of(last_mask)
        begin = end - 1
        while last_mask[begin - 1]:
            begin -= 1
        answer = last[begin:end]
        with_bos = last[0] == both.own.bos_id
        at = next(at for at in range(len(mask), 0, -1) if not mask[at - 1])  # where the last trained stretch begins
        kept = tokens[at:]
        assert kept == answer[: len(kept)]
        assert len(tokens) == room
        prompt = tokens[with_bos : at]
        assert prompt == last[begin - len(prompt) : begin]
        if len(answer) < room:
            assert kept == answer
        else:
            assert at == min(begin, room // 2)
            assert len(kept) < len(answer)  # and so it has no end
    both_ways = {"shortened": dropped, "cut": cut}
    assert all(both_ways.values()), both_ways


@pytest.mark.parametrize("train_on", ["assistant", "all"])
def test_of_a_pair_the_end_of_the_prompt_and_the_beginning_of_the_answer_stay(both: Both, train_on: str) -> None:
    chance = random.Random(new_seed())
    for _ in range(count(EXAMPLES)):
        prompt, answer = (chance.choice(LINES)[: chance.randint(1, 100)] for _ in range(2))
        example = {"prompt": prompt, "completion": " " + answer}
        max_length = chance.randint(1, 60)
        room = max_length + 1
        whole, whole_mask, *_ = both.encode(example, train_on, ALL)
        tokens, mask, truncated, truncated_trained = both.encode(example, train_on, max_length)
        assert (len(tokens) + truncated, sum(mask) + truncated_trained) == (len(whole), sum(whole_mask))
        begin = len(both.lab.ask("prompt", prompt=prompt))
        size = len(whole) - begin
        kept = min(begin, room - size if size < room else room // 2)
        bos = [both.own.bos_id] if both.own.bos_id is not None else []
        prompt_tokens = whole[:begin] if kept == begin else bos + whole[begin - kept + len(bos) : begin]
        assert tokens == prompt_tokens + whole[begin : begin + room - len(prompt_tokens)]
        assert mask[len(prompt_tokens) :] == [1] * (len(tokens) - len(prompt_tokens))


def test_both_answers_of_a_preference_stand_behind_the_same_prompt(both: Both) -> None:
    chance = random.Random(new_seed())
    for _ in range(count(EXAMPLES)):
        prompt, chosen, rejected = (chance.choice(LINES)[: chance.randint(1, 100)] for _ in range(3))
        if chosen == rejected:
            continue
        example = {"prompt": prompt, "chosen": " " + chosen, "rejected": " " + rejected}
        max_length = chance.randint(1, 60)
        found = both.lab.ask("example", example=example, max_length=max_length)
        whole = both.lab.ask("example", example=example, max_length=ALL)
        ((tokens, mask, other, other_mask),) = found["rows"]
        sizes = [sum(map(len, row[::2])) for row in (found["rows"][0], whole["rows"][0])]
        trained = [sum(map(sum, row[1::2])) for row in (found["rows"][0], whole["rows"][0])]
        assert sizes[0] + found["truncated_tokens"] == sizes[1]
        assert trained[0] + found["truncated_trained_tokens"] == trained[1]
        assert max(len(tokens), len(other)) <= max_length + 1
        assert tokens[: mask.index(1)] == other[: other_mask.index(1)]


def test_older_answers_of_given_ids_are_trained_from_their_beginning_or_not_at_all(lab: TextLab) -> None:
    lab.ask("close")
    encoder: Callable[[int], ExampleEncoder] = lambda length: ExampleEncoder(None, None, "assistant", length)  # noqa: E731
    chance = random.Random(new_seed())
    for _ in range(count(20_000)):
        size, max_length = chance.randint(2, 40), chance.randint(1, 40)
        mask = [int(chance.random() < chance.choice((0.1, 0.5, 0.9))) for _ in range(size)]
        tokens = list(range(100, 100 + size))
        if not any(mask[1:]):
            continue
        found = lab.ask("example", example={"tokens": tokens, "mask": mask}, max_length=max_length)
        ((kept, kept_mask),) = found["rows"]
        ours = encoder(max_length).encode({"tokens": tokens, "mask": mask})
        assert (ours.rows[0].tokens.tolist(), ours.rows[0].mask.tolist()) == (kept, kept_mask)
        assert len(kept) + found["truncated_tokens"] == size
        assert sum(kept_mask) + found["truncated_trained_tokens"] == sum(mask[1:])
        assert kept == list(range(kept[0], kept[0] + len(kept)))
        first = kept[0] - 100
        assert kept_mask == [0, *mask[first + 1 : first + len(kept)]]
        stretches = [at for at in range(1, len(kept)) if kept_mask[at] and not kept_mask[at - 1]]
        last = max(at for at in range(1, size) if mask[at])
        begin = last
        while begin > 1 and mask[begin - 1]:
            begin -= 1
        for at in stretches:
            place = first + at  # in the whole
            assert place == 1 or not mask[place - 1] or place == begin or len(kept) == size, (mask, kept)
