# SPDX-License-Identifier: Apache-2.0
"""Answers and losses, held against transformers on the dequantized model with the same adapter loaded by peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke.bundle.reader import Bundle
from bespoke.reference.evaluate import evaluate
from bespoke.reference.generate import generate
from bespoke.reference.machine import AnsweringMachine, adapter_tensors
from bespoke.reference.train import train
from bespoke.rules.batches import evaluation_batches
from bespoke.rules.sampling import choose_token
from tests.support.models import masked_loss, peft_reference
from tests.unit.personal_model.tiny import ALPHA, CONTEXT, LENGTHS, RANK, VOCABULARY, number_rows

CHUNK = 64
PROMPTS = [1, 2, CHUNK, CHUNK + 1, CHUNK + 2, CHUNK + 5, CONTEXT - 6, CONTEXT - 1]
Adapter = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def trained(bundle: Bundle) -> Adapter:
    return dict(train(bundle, user_rows=number_rows(), seed=1).adapter)


@pytest.fixture(scope="module")
def reference(trained: Adapter, tiny_folder: Path) -> Any:
    """transformers and peft, with the trained adapter."""
    return peft_reference(tiny_folder / "model", trained, rank=RANK, alpha=ALPHA)[0]


def prompt(length: int) -> list[int]:
    return [(17 * length + 13 * place) % VOCABULARY for place in range(length)]


def theirs(reference: Any, tokens: list[int], count: int) -> list[int]:
    made = reference.generate(
        input_ids=torch.tensor([tokens]),
        attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return made[0, len(tokens) :].tolist()


@pytest.mark.parametrize("length", PROMPTS)
def test_greedy_answers_are_those_of_transformers_generate(
    bundle: Bundle, trained: Adapter, reference: Any, length: int
) -> None:
    tokens = prompt(length)
    assert bundle.manifest.context_length == CONTEXT
    assert bundle.manifest.generation is not None
    assert bundle.manifest.generation.sequence_length == CHUNK
    ours = list(generate(bundle, tokens, trained, max_tokens=20))
    assert len(ours) == min(20, CONTEXT - length + 1)  # the last token of the context is followed by one more
    assert ours == theirs(reference, tokens, len(ours))


def test_logits_from_the_cache_equal_a_full_forward_at_every_position(
    bundle: Bundle, trained: Adapter, reference: Any
) -> None:
    tokens = prompt(CONTEXT - 3)
    machine, adapter = AnsweringMachine(bundle), adapter_tensors(trained)
    with torch.no_grad():
        whole = reference(input_ids=torch.tensor([tokens])).logits[0].numpy()  # (T, V)
    for first in (0, 5, CHUNK, CHUNK + 9):
        machine.prefill(tokens[:first], 0, adapter)
        for position in range(first, min(first + 8, len(tokens))):
            logits = machine.decode(tokens[position], position, adapter).numpy().reshape(-1)
            np.testing.assert_allclose(logits, whole[position], rtol=1e-4, atol=1e-4)
        machine.end_session()


def test_sampled_answers_follow_the_logits_of_transformers_by_the_counter(
    bundle: Bundle, trained: Adapter, reference: Any
) -> None:
    settings = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "seed": 5}
    tokens = prompt(5)
    ours = list(generate(bundle, tokens, trained, max_tokens=15, **settings))
    for token in ours:
        with torch.no_grad():
            logits = reference(input_ids=torch.tensor([tokens])).logits[0, -1].numpy()
        assert choose_token(logits, position=len(tokens), **settings) == token
        tokens = [*tokens, token]
    assert ours == list(generate(bundle, prompt(5), trained, max_tokens=15, **settings))
    assert ours != list(generate(bundle, prompt(5), trained, max_tokens=15, **{**settings, "seed": 6}))


def test_an_answer_that_is_dropped_halfway_leaves_nothing_for_the_next(bundle: Bundle, trained: Adapter) -> None:
    whole = list(generate(bundle, prompt(9), trained, max_tokens=6))
    half = generate(bundle, prompt(20), trained, max_tokens=6)
    next(half)
    half.close()
    assert list(generate(bundle, prompt(9), trained, max_tokens=6)) == whole


def test_evaluation_is_the_loss_of_transformers(bundle: Bundle, trained: Adapter, reference: Any) -> None:
    judged = number_rows(7, first=20)
    found = evaluate(bundle, judged, trained)
    assert found is not None
    total, right, count = 0.0, 0, 0
    for batch in evaluation_batches(judged, 1, LENGTHS):
        tokens, targets, mask = (torch.from_numpy(array) for array in (batch.tokens, batch.targets, batch.mask))
        with torch.no_grad():
            total += masked_loss(reference, tokens, targets, mask).item() * batch.tokens_trained
            guesses = reference(input_ids=tokens).logits.argmax(-1)
        right += int(((guesses == targets) & (mask > 0)).sum())
        count += batch.tokens_trained
    assert found.tokens == count == sum(int(row.mask.sum()) for row in judged)
    assert found.examples == len(judged)
    assert found.loss == pytest.approx(total / count, rel=1e-5)
    assert found.accuracy == right / count
    assert found.perplexity == pytest.approx(np.exp(total / count), rel=1e-4)
