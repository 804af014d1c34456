# SPDX-License-Identifier: Apache-2.0
"""What a model knows after learning, and how likely the base model's own answers still are to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.harmless_words import Asked, Fact

if TYPE_CHECKING:
    from bespoke import PersonalModel

BEHAVIOUR_TOKENS = 72  # of an answer of the base; with its prompt it fits in a row of 128
FACT_TOKENS = 32
SHOWN = 4  # one prompt of so many is answered and its answer's length measured
DRAWS = 2000


@dataclass(frozen=True)
class Answer:
    """A greedy answer. `ended`: the model ended it itself."""

    tokens: list[int]
    text: str
    ended: bool


@dataclass(frozen=True)
class BaseAnswer:
    """What the base model answers: tokens of the prompt, and of the answer with what ends it."""

    prompt: list[int]
    answer: list[int]
    text: str


@dataclass(frozen=True)
class Measured:
    """What one model answers.

    taught, other: whether the answer to each question is right, in the words that were taught and in other words
    behaviour:     (nats of the whole answer, its tokens) for each answer of the base
    characters:    of each answer to a prompt that is not about a fact
    """

    taught: list[bool]
    other: list[bool]
    behaviour: list[tuple[float, int]]
    characters: list[int]


def answer(model: PersonalModel, prompt: Sequence[int], most: int) -> Answer:
    with model.conversation(max_tokens=most) as conversation:
        pieces = list(conversation.feed(list(prompt)))
        ended = conversation.stopped_because == "stop_token"
    tokens = [piece.token for piece in pieces if piece.token is not None]
    return Answer(tokens, "".join(piece.text for piece in pieces), ended)


def base_answers(model: PersonalModel, asked: Asked, prompts: Sequence[str]) -> list[BaseAnswer]:
    """What `model`, which has learned nothing, says."""
    assert not model.versions()
    answers = []
    for words in prompts:
        prompt = asked.prompt(words)
        said = answer(model, prompt, BEHAVIOUR_TOKENS)
        answers.append(BaseAnswer(prompt, [*said.tokens, *([asked.end] if said.ended else [])], said.text))
    return answers


def measure(model: PersonalModel, asked: Asked, facts: Sequence[Fact], base: Sequence[BaseAnswer]) -> Measured:
    return Measured(
        taught=[fact.is_in(answer(model, asked.about(fact.question), FACT_TOKENS).text) for fact in facts],
        other=[
            fact.is_in(answer(model, asked.about(words), FACT_TOKENS).text) for fact in facts for words in fact.wordings
        ],
        behaviour=[nats(model, one) for one in base],
        characters=[len(answer(model, one.prompt, BEHAVIOUR_TOKENS).text) for one in base[::SHOWN]],
    )


def nats(model: PersonalModel, one: BaseAnswer) -> tuple[float, int]:
    """Nats of one of the base's answers, and its tokens."""
    tokens = [*one.prompt, *one.answer]
    mask = [0] * len(one.prompt) + [1] * len(one.answer)
    evaluation = model.evaluate([{"tokens": tokens, "mask": mask}])
    assert evaluation.tokens == len(one.answer), f"a row of {len(tokens)} tokens was cut"
    return evaluation.loss * evaluation.tokens, evaluation.tokens


@dataclass(frozen=True)
class Ratio:
    """Nats of the base's answers, times those of the base itself, with the interval that holds it in 95 of 100 draws of prompts."""

    value: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.least:.3f} to {self.most:.3f})"


def ratio(runs: Sequence[Sequence[tuple[float, int]]], base: Sequence[tuple[float, int]]) -> Ratio:
    """`runs`: a list for each seed, in the order of `base`. Prompts are drawn with replacement; seeds are averaged."""
    means = [sum(run[place][0] for run in runs) / len(runs) for place in range(len(base))]
    before = [nats for nats, _ in base]
    rng = random.Random(0)
    draws = []
    for _ in range(DRAWS):
        places = rng.choices(range(len(base)), k=len(base))
        draws.append(sum(means[place] for place in places) / sum(before[place] for place in places))
    draws.sort()
    return Ratio(sum(means) / sum(before), draws[int(0.025 * DRAWS)], draws[int(0.975 * DRAWS)])
