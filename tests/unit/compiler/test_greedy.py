# SPDX-License-Identifier: Apache-2.0
"""Greedy answers in batches: those of transformers for one prompt after the other, and the same with any number of threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bespoke.compiler import greedy
from bespoke.compiler.greedy import Question, greedy_answers
from bespoke.config import Lora
from bespoke.model.convert import convert
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from tests.support.models import EACH_FAMILY, dequantized_reference, tiny_model

STOP = 7
CONTEXT = 64


def questions(count: int) -> list[Question]:
    chance = np.random.default_rng(0)
    return [Question(chance.integers(0, 131, 1 + (5 * row) % 34).tolist(), 4 + row % 26) for row in range(count)]


def files_of(folder: Path, out: Path) -> tuple[ModelSpec, dict[str, Path]]:
    config = read_config(folder)
    return ModelSpec(config, Lora(rank=2)), convert(folder, config, out, context=CONTEXT)


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_answers_are_those_of_transformers_for_each_prompt_alone(family: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path / "model")
    model, files = files_of(folder, tmp_path / "weights")
    asked = questions(20)
    answers = greedy_answers(model, files, asked, {STOP})
    network = dequantized_reference(folder)
    for question, answer in zip(asked, answers, strict=True):
        prompt = torch.tensor([question.tokens])
        whole = network.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=question.most,
            eos_token_id=STOP,
            pad_token_id=0,
        )
        assert answer == whole[0, len(question.tokens) :].tolist()
    ended = [answer[-1] == STOP for answer in answers]
    assert any(ended) or family != "llama"
    assert not all(ended)


def test_threads_share_the_batches_and_change_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, files = files_of(tiny_model("llama", tmp_path / "model"), tmp_path / "weights")
    monkeypatch.setattr(greedy, "CACHE_BYTES", 1)  # the smallest batches
    counts: list[tuple[int, int]] = []
    before = torch.get_num_threads()
    answers = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            counts.clear()
            answers.append(
                greedy_answers(model, files, questions(40), {STOP}, lambda done, total: counts.append((done, total)))
            )
            assert counts[-1] == (40, 40)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert answers[0] == answers[1]


def test_an_error_of_one_batch_ends_the_others(tmp_path: Path) -> None:
    model, files = files_of(tiny_model("llama", tmp_path / "model"), tmp_path / "weights")
    with pytest.raises(IndexError):  # a token that the model does not have
        greedy_answers(model, files, [*questions(8), Question([131], 4)], {STOP})
