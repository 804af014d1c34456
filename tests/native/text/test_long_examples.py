# SPDX-License-Identifier: Apache-2.0
"""Examples longer than the longest sequence, by both encoders: which turns a row has, found here by trying each one; that what is
trained is trained once; and that nothing is lost that is not counted."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.native.text.both import ALL, GIVEN, Both, Row
from tests.native.text.lab import TextLab
from tests.support.checks import count, few_of, new_seed
from tests.support.example_encoder import ExampleEncoder
from tests.support.trained_tokenizers import pages

Messages = list[dict[str, Any]]
EXAMPLES = 2_500
LINES = [line.strip() for line in pages()[:40] if line.strip()]


@pytest.fixture(params=GIVEN)
def both(request: pytest.FixtureRequest, lab: TextLab, tmp_path: Any) -> Both:
    return Both(lab, *GIVEN[request.param], tmp_path)


def conversation(chance: random.Random) -> Messages:
    messages: Messages = []
    if chance.random() < 0.4:
        messages.append({"role": "system", "content": chance.choice(LINES)[: chance.randint(1, 60)]})
    for _ in range(chance.randint(1, 9)):
        for role in ("user", "assistant"):
            words = " ".join(chance.choices(LINES, k=2))[: chance.randint(1, 120)].strip()
            messages.append({"role": role, "content": words or "x"})
            if chance.random() < 0.15:
                messages[-1]["weight"] = 0
    if chance.random() < 0.05:
        messages = [m if m["role"] == "system" else {**m, "weight": 0} for m in messages]
    return messages if chance.random() < 0.7 else messages[:-1] if len(messages) > 2 else messages


def end_of(mask: list[int]) -> int:
    return max((at for at in range(len(mask)) if mask[at]), default=-1) + 1


class Plan:
    """The rows of a conversation by the rule of docs/how_to/collect_examples.md, each choice found by trying all."""

    def __init__(self, both: Both, messages: Messages, train_on: str, room: int) -> None:
        self.both, self.messages, self.train_on, self.room = both, messages, train_on, room
        self.first = int(messages[0]["role"] == "system")
        self.trained = [
            i
            for i, m in enumerate(messages)
            if m.get("weight") != 0 and train_on in ("all", m["role"]) and m["content"].strip()
        ]
        self.starts = [self.first] + [
            i
            for i in range(self.first + 1, len(messages))
            if messages[i]["role"] == "user" or i not in self.trained
            if both.turns.knows("system" if self.first else "start", messages[i]["role"], True)
        ]

    def row(self, begin: int, last: int, done: int) -> Row:
        """The row of messages from `begin` to the trained message `last`, or to the conversation's end for the last of all;
        messages before `done` are context."""
        end = len(self.messages) if last == self.trained[-1] else last + 1
        some = [{**m, "weight": 0} if number < done else m for number, m in enumerate(self.messages[:end])]
        found = self.both.try_encode({"messages": some[: self.first] + some[begin:]}, self.train_on)
        assert found is not None
        return found

    def fits(self, row: Row) -> bool:
        return end_of(row[1]) <= self.room

    def places(self, messages: Messages, number: int) -> list[int]:
        """Where in the tokens of a conversation the words and the ending of one of its messages are."""
        alone = [{**m, "weight": int(at == number)} for at, m in enumerate(messages)]
        found = self.both.try_encode({"messages": alone}, "all")
        return [] if found is None else [at for at, trained in enumerate(found[1]) if trained]

    def words_in(self, begin: int, last: int, done: int, first: int, behind: int) -> set[tuple[int, int]]:
        """(message, which of its tokens) of those that such a row has, from its own token `first` to before `behind`; what is to be
        trained on counts where it is."""
        end = len(self.messages) if last == self.trained[-1] else last + 1
        numbers = [*range(self.first), *range(begin, end)]
        some = [self.messages[number] for number in numbers]
        found = set()
        for place, number in enumerate(numbers):
            if number in self.trained and number < done:
                continue
            predicted = (
                number in self.trained and first > 0 and self.row(begin, last, done)[0][0] != self.both.own.bos_id
            )
            places = enumerate(self.places(some, place))
            found |= {(number, index) for index, at in places if first + predicted <= at < behind}
        return found

    def rows(self) -> list[tuple[int, int, int]]:
        """(begin, last, done) of each."""
        found, left, done = [], [i for i in self.trained if i >= self.first], 0
        if not left:  # the system message's words alone are trained: the whole is one row
            return [(self.first, self.trained[-1], done)]
        while left:
            next_one = left[0]
            before = [start for start in self.starts if start < next_one] or self.starts[:1]
            begin = before[-1]
            if not self.fits(self.row(begin, next_one, done)) and next_one in self.starts:
                begin = next_one
            if self.fits(self.row(begin, next_one, done)):
                earlier = [start for start in self.starts if start < begin]
                if earlier and self.fits(self.row(earlier[-1], next_one, done)):
                    prompt = self.row(earlier[-1], next_one, max(done, next_one))[1].index(1)
                    begin = earlier[-1] if prompt <= self.room // 2 else begin
                last = next_one
                for more in left:
                    last = more if self.fits(self.row(begin, more, done)) else last
                begin = next(start for start in self.starts if self.fits(self.row(start, last, done)))
            else:
                last = next_one
            found.append((begin, last, done))
            done, left = last + 1, [i for i in left if i > last]
        return found


@pytest.mark.parametrize("train_on", ["assistant", "user", "all"])
def test_a_long_conversation_becomes_rows_that_train_each_answer_once(both: Both, train_on: str) -> None:
    seed, examples = new_seed(), count(EXAMPLES)
    chance = random.Random(seed)
    met = {"one": 0, "several": 0, "cut": 0}
    for _ in range(examples):
        messages, room = conversation(chance), chance.randint(4, chance.choice((150, 600))) + 1
        whole = both.try_encode({"messages": messages}, train_on)
        if whole is None:
            continue
        rows, truncated, truncated_trained = both.rows({"messages": messages}, train_on, room - 1)
        if both.exact or train_on == "assistant":
            assert sum(sum(mask) for _, mask in rows) + truncated_trained == sum(whole[1]), (messages, room)
        if truncated_trained == 0:
            assert "".join(map(both.trained_text, rows)) == both.trained_text(whole)
        assert truncated >= truncated_trained
        plan = Plan(both, messages, train_on, room)
        if end_of(whole[1]) <= room:
            met["one"] += 1
            kept = whole if len(whole[0]) <= room else (whole[0][: end_of(whole[1])], whole[1][: end_of(whole[1])])
            assert rows == [kept]
            continue
        planned = plan.rows()
        assert len(rows) == len(planned), (messages, room, planned)
        in_rows: set[tuple[int, int]] = set()
        for (tokens, mask), (begin, last, done) in zip(rows, planned, strict=True):
            own = plan.row(begin, last, done)
            end = end_of(own[1])
            if end <= room:
                kept = own if len(own[0]) <= room else (own[0][:end], own[1][:end])
                assert (tokens, mask) == kept, (messages, room, planned)
                in_rows |= plan.words_in(begin, last, done, 0, len(tokens))
            else:
                met["cut"] += 1
                in_rows |= plan.words_in(begin, last, done, *check_cut(both, tokens, mask, own, room))
        if both.exact:
            everything = range(len(messages))
            assert truncated == sum(len(plan.places(messages, number)) for number in everything) - len(in_rows), (
                messages,
                room,
            )
        met["several"] += len(rows) > 1
        if all(plan.fits(plan.row(*row)) for row in planned):
            assert truncated_trained == 0
    assert all(met.values()), met


@pytest.mark.parametrize("max_length", few_of([63, 255, 1023], [255]))
def test_every_answer_of_a_very_long_conversation_is_trained_once_for_a_few_times_its_tokens(
    both: Both, max_length: int
) -> None:
    messages = [
        {"role": role, "content": words.format(number)}
        for number in range(10_000)
        for role, words in (("user", "{}. Where is the key?"), ("assistant", "Under pot {}."))
    ]
    found = both.lab.ask("example", example={"messages": messages}, max_length=max_length)
    assert found["truncated_tokens"] == 0
    text = "".join(both.trained_text((tokens, mask)) for tokens, mask in found["rows"])
    assert [int(number) for number in re.findall(r"Underpot(\d+)\.", text)] == list(range(10_000))
    assert all(sum(mask) for _, mask in found["rows"])

    encoder = ExampleEncoder(both.own, both.turns, "assistant", max_length)
    assert encoder._turn_encoder is not None
    encode = encoder._turn_encoder.encode
    tokenized = []

    def counted(pieces: Any, subject: str) -> Any:
        tokenized.append(len(pieces))
        return encode(pieces, subject)

    encoder._turn_encoder.encode = counted  # type: ignore[method-assign]
    ours = encoder.encode({"messages": messages[:2000]})
    whole, *others = tokenized
    assert sum(others) < 12 * whole
    assert [(row.tokens.tolist(), row.mask.tolist()) for row in ours.rows[:-2]] == [
        (tokens, mask) for tokens, mask in found["rows"][: len(ours.rows) - 2]
    ]


def check_cut(both: Both, tokens: list[int], mask: list[int], own: Row, room: int) -> tuple[int, int]:
    """A row whose answer does not fit with its question: the answer whole behind the end of the question, or its beginning. From
    which of the tokens before it was cut to before which it has."""
    last, last_mask = own
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
    prompt = tokens[with_bos:at]
    assert prompt == last[begin - len(prompt) : begin]
    if len(answer) < room:
        assert kept == answer
    else:
        assert at == min(begin, room // 2)
        assert len(kept) < len(answer)  # and so it has no end
    return begin - len(prompt) if len(prompt) + with_bos < begin else 0, begin + len(kept)


@pytest.mark.parametrize("train_on", ["assistant", "all"])
def test_of_a_pair_the_end_of_the_prompt_and_the_beginning_of_the_answer_stay(both: Both, train_on: str) -> None:
    chance = random.Random(new_seed())
    for _ in range(count(EXAMPLES)):
        prompt, answer = (chance.choice(LINES)[: chance.randint(1, 100)] for _ in range(2))
        example = {"prompt": prompt, "completion": answer}
        max_length = chance.randint(1, 60)
        room = max_length + 1
        whole, whole_mask, *_ = both.encode(example, train_on, ALL)
        tokens, mask, truncated, truncated_trained = both.encode(example, train_on, max_length)
        assert (len(tokens) + truncated, sum(mask) + truncated_trained) == (len(whole), sum(whole_mask))
        begin = len(both.lab.ask("prompt", prompt=[{"role": "user", "content": prompt}]))
        size = len(whole) - begin
        kept = min(begin, room - size if size < room else room // 2)
        bos = [both.own.bos_id] if whole[0] == both.own.bos_id else []
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
