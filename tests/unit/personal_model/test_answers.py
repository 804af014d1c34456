# SPDX-License-Identifier: Apache-2.0
"""Answers and losses, held against transformers on the dequantized model with the same adapter loaded by peft."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke import PersonalModel
from bespoke.errors import DataError, GenerationError
from bespoke.rules.batches import evaluation_batches
from bespoke.rules.sampling import choose_token
from bespoke.runtime.generate import _decode, _prefill
from bespoke.runtime.machine import adapter_tensors
from tests.bundles import shakespeare, stories_bundle  # noqa: F401
from tests.models import masked_loss, peft_reference
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import ALPHA, LENGTHS, RANK, VOCABULARY, numbers

CONTEXT = 2 * LENGTHS[-1]
PROMPTS = [1, 2, LENGTHS[-1], LENGTHS[-1] + 1, LENGTHS[-1] + 5, CONTEXT - 6, CONTEXT - 1]


@pytest.fixture(scope="module")
def trained(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PersonalModel]:
    with PersonalModel.open(tiny_bundle, tmp_path_factory.mktemp("trained") / "state") as model:
        for index in range(12):
            model.examples.add(numbers(index), id=f"number-{index}")
        assert model.train().accepted
        yield model


@pytest.fixture(scope="module")
def reference(trained: PersonalModel, tiny_folder: Path) -> Any:
    """transformers and peft, with the adapter that answers."""
    return peft_reference(tiny_folder / "model", trained._on_torch("").adapter_arrays(), rank=RANK, alpha=ALPHA)[0]


def prompt(length: int) -> list[int]:
    return [(17 * length + 13 * place) % VOCABULARY for place in range(length)]


def theirs(reference: Any, tokens: list[int], count: int) -> list[int]:
    made = reference.generate(
        input_ids=torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens), dtype=torch.long), max_new_tokens=count,
        do_sample=False, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return made[0, len(tokens) :].tolist()


@pytest.mark.parametrize("length", PROMPTS)
def test_greedy_answers_are_those_of_transformers_generate(trained: PersonalModel, reference: Any, length: int) -> None:
    tokens = prompt(length)
    assert trained._bundle.manifest.context_length == CONTEXT
    ours = list(trained.generate_ids(tokens, max_tokens=20))
    assert len(ours) == min(20, CONTEXT - length + 1)  # the last token of the context is followed by one more
    assert ours == theirs(reference, tokens, len(ours))


def test_logits_from_the_cache_equal_a_full_forward_at_every_position(trained: PersonalModel, reference: Any) -> None:
    tokens = prompt(CONTEXT - 3)
    machine, adapter = trained._on_torch("").machine(), adapter_tensors(trained._on_torch("").adapter_arrays())
    with torch.no_grad():
        whole = reference(input_ids=torch.tensor([tokens])).logits[0].numpy()  # (T, V)
    for first in (0, 5, LENGTHS[-1], LENGTHS[-1] + 9):
        _prefill(machine, tokens[:first], adapter)
        for position in range(first, min(first + 8, len(tokens))):
            logits = _decode(machine, tokens[position], position, adapter).numpy().reshape(-1)
            np.testing.assert_allclose(logits, whole[position], rtol=1e-4, atol=1e-4)
        machine.buffers.end_session()


def test_sampled_answers_follow_the_logits_of_transformers_by_the_counter(trained: PersonalModel, reference: Any) -> None:
    settings = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "seed": 5}
    tokens = prompt(5)
    ours = list(trained.generate_ids(tokens, max_tokens=15, **settings))
    for token in ours:
        with torch.no_grad():
            logits = reference(input_ids=torch.tensor([tokens])).logits[0, -1].numpy()
        assert choose_token(logits, position=len(tokens), **settings) == token
        tokens = [*tokens, token]
    assert ours == list(trained.generate_ids(prompt(5), max_tokens=15, **settings))
    assert ours != list(trained.generate_ids(prompt(5), max_tokens=15, **{**settings, "seed": 6}))


def test_an_answer_that_is_dropped_halfway_leaves_nothing_for_the_next(trained: PersonalModel) -> None:
    whole = list(trained.generate_ids(prompt(9), max_tokens=6))
    half = trained.generate_ids(prompt(20), max_tokens=6)
    next(half)
    half.close()
    assert list(trained.generate_ids(prompt(9), max_tokens=6)) == whole


def test_prompts_and_settings_that_cannot_be_answered_are_refused(trained: PersonalModel) -> None:
    with pytest.raises(DataError, match="prompt"):
        list(trained.generate_ids([]))
    with pytest.raises(GenerationError, match="prompt"):
        list(trained.generate_ids(prompt(CONTEXT)))
    for settings in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_k": 0}):
        with pytest.raises(GenerationError):
            list(trained.generate_ids([1], **settings))  # type: ignore[arg-type]
    with pytest.raises(GenerationError, match="generate_ids"):
        trained.generate("words")


def test_evaluation_is_the_loss_of_transformers(trained: PersonalModel, reference: Any) -> None:
    examples = [numbers(index) for index in range(20, 27)]
    found = trained.evaluate(examples)
    rows = [row for example in examples for row in trained._encoder.encode(example).rows]
    total, right, count = 0.0, 0, 0
    for batch in evaluation_batches(rows, 1, LENGTHS):
        tokens, targets, mask = (torch.from_numpy(array) for array in (batch.tokens, batch.targets, batch.mask))
        with torch.no_grad():
            total += masked_loss(reference, tokens, targets, mask).item() * batch.tokens_trained
            guesses = reference(input_ids=tokens).logits.argmax(-1)
        right += int(((guesses == targets) & (mask > 0)).sum())
        count += batch.tokens_trained
    assert found.tokens == count == sum(sum(example["mask"]) for example in examples)
    assert found.examples == len(examples)
    assert found.loss == pytest.approx(total / count, rel=1e-5)
    assert found.accuracy == right / count
    assert found.perplexity == pytest.approx(np.exp(total / count), rel=1e-4)


def test_evaluation_without_examples_is_a_typed_error(opened: Open) -> None:
    with pytest.raises(DataError, match="none"):
        opened(count=0).evaluate()
    with pytest.raises(DataError, match="none"):
        opened(count=0).evaluate([])


def test_text_streams_in_pieces_that_join_to_what_the_token_ids_say(
    stories_bundle: Path, data_folder: Path, tmp_path: Path  # noqa: F811
) -> None:
    with PersonalModel.open(stories_bundle, tmp_path / "state") as model:
        for number, example in enumerate(shakespeare(data_folder, 3)):
            model.examples.add(example, id=str(number))
        tokenizer = model._encoder.tokenizer
        assert tokenizer is not None
        prompt_ids = model._encoder.prompt_ids("Once upon a time")
        ids = list(model.generate_ids(prompt_ids, max_tokens=12))
        pieces = list(model.generate("Once upon a time", max_tokens=12))
        assert "".join(pieces).strip() == tokenizer.decode(ids).strip()
        assert len(pieces) > 1
        assert model.train(2).steps == 2
        assert model.generate("Once", max_tokens=3) is not None
