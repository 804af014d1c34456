# SPDX-License-Identifier: Apache-2.0
"""Token choice against transformers' own filters and against the rule written out in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from bespoke.errors import GenerationError
from bespoke.rules.sampling import choose_token
from tests.unit.rules.numbers import integers

LOGITS = np.random.default_rng(2).normal(0, 2, 40).astype(np.float32)
LOGITS[[3, 17, 30]] = LOGITS[5]  # ties


def by_the_rule(
    logits: np.ndarray, temperature: float, top_p: float, top_k: int | None, seed: int, position: int
) -> int:
    values = [float(x) for x in logits]
    falling = sorted(range(len(values)), key=lambda i: (-values[i], i))[:top_k]
    weight = {i: math.exp((values[i] - max(values)) / temperature) for i in falling}
    whole, held, kept = math.fsum(weight.values()), 0.0, []
    for token in falling:
        kept.append(token)
        held += weight[token]
        if held >= top_p * whole:
            break
    word = integers([position, 0, 0x80000003, 0], [seed % 2**32, seed >> 32])[0]
    mark = (word + 0.5) / 2**32 * math.fsum(weight[i] for i in kept)
    held = 0.0
    for token in sorted(kept):
        held += weight[token]
        if held > mark:
            return token
    raise AssertionError


@pytest.mark.parametrize("top_k", [None, 1, 5, 40, 100])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
def test_the_token_is_the_rules(temperature: float, top_p: float, top_k: int | None) -> None:
    settings: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "seed": (9 << 32) + 4}
    for position in range(40):
        got = choose_token(LOGITS, position=position, **settings)
        assert got == by_the_rule(LOGITS, position=position, **settings)


@pytest.mark.parametrize(("top_p", "top_k"), [(1.0, None), (0.8, None), (1.0, 7), (0.6, 12)])
def test_frequencies_are_the_probabilities_of_transformers(top_p: float, top_k: int | None) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    logits = np.random.default_rng(4).normal(0, 2, 40).astype(np.float32)  # no ties: their order of equals is open
    scores = transformers.TemperatureLogitsWarper(0.7)(None, torch.tensor(logits)[None])
    if top_k:
        scores = transformers.TopKLogitsWarper(top_k)(None, scores)
    scores = transformers.TopPLogitsWarper(top_p)(None, scores)
    probabilities = torch.softmax(scores.double(), -1)[0].numpy()
    draws = 4000
    seen = Counter(
        choose_token(logits, temperature=0.7, top_p=top_p, top_k=top_k, seed=1, position=position)
        for position in range(draws)
    )
    assert all(probabilities[token] > 0 for token in seen)
    for token, probability in enumerate(probabilities):
        assert abs(seen[token] / draws - probability) < 5 * math.sqrt(probability * (1 - probability) / draws) + 1e-3


def test_greedy_takes_the_largest_and_the_lowest_id_among_equals() -> None:
    assert choose_token(np.array([1, 5, 2, 5], np.float32), temperature=0) == 1


def test_forbidden_tokens_are_never_chosen() -> None:
    logits = np.full(10, -np.inf, np.float32)
    logits[[2, 7]] = [0.0, 1.0]
    seen = {choose_token(logits, temperature=1.0, top_k=5, position=position) for position in range(200)}
    assert seen == {2, 7}


def test_seed_and_position_decide_the_draw() -> None:
    flat = np.zeros(1000, np.float32)
    assert len({choose_token(flat, temperature=1.0, position=position) for position in range(20)}) > 15
    assert len({choose_token(flat, temperature=1.0, seed=seed) for seed in range(20)}) > 15
    assert choose_token(flat, temperature=1.0, seed=3, position=4) == choose_token(
        flat, temperature=1.0, seed=3, position=4
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": 0},
        {"seed": -1},
        {"position": 1 << 32},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(GenerationError) as caught:
        choose_token(LOGITS, **({"temperature": 1.0} | wrong))
    assert caught.value.subject == next(iter(wrong))


@pytest.mark.parametrize(
    "logits",
    [np.array([1, np.nan]), np.array([np.inf, 0]), np.full(3, -np.inf), np.zeros((2, 3)), np.zeros(0)],
    ids=["nan", "infinite", "all forbidden", "two dimensions", "empty"],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_hold_no_distribution_are_refused(logits: np.ndarray, temperature: float) -> None:
    with pytest.raises(GenerationError, match="logits"):
        choose_token(logits.astype(np.float32), temperature=temperature)
