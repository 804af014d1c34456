# SPDX-License-Identifier: Apache-2.0
"""Answers that a build rehearses, against transformers with the bundle's weights: greedy, one prompt at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bespoke.bundle.reader import read_bundle
from bespoke.compiler.greedy import Question, greedy_answers
from bespoke.data.prompts import read_prompts
from bespoke.model.spec import ModelSpec
from tests.real_model.conftest import RealModel

pytestmark = [pytest.mark.slow]
TOKENS = 48
LEAST_GAP = 1e-3  # between the two likeliest tokens, in nats; below it float32 may choose either


def test_answers_are_those_of_transformers(real_model: RealModel) -> None:
    with read_bundle(real_model.bundle) as bundle:
        manifest = bundle.manifest
    model = ModelSpec(manifest.model.config, manifest.lora.settings)
    files = {record.group: Path(real_model.bundle / record.file) for record in manifest.weights}
    prompts = read_prompts("everyday" if real_model.chats else "openings", [])[::24]
    asked = [Question(real_model.prompt(prompt.text), TOKENS) for prompt in prompts]
    answers = greedy_answers(model, files, asked, real_model.ends)
    compared = 0
    for question, answer in zip(asked, answers, strict=True):
        tokens = torch.tensor([[*question.tokens, *answer]])
        with torch.no_grad():
            logits = real_model.network(input_ids=tokens, use_cache=False).logits[0, len(question.tokens) - 1 : -1]
        best, second = logits.topk(2).values.T
        sure = best - second > LEAST_GAP
        assert logits.argmax(1)[sure].tolist() == torch.tensor(answer)[sure].tolist()
        compared += int(sure.sum())
        assert len(answer) == TOKENS or answer[-1] in real_model.ends
    assert compared > 0.9 * sum(map(len, answers))
