# SPDX-License-Identifier: Apache-2.0
"""Evaluation, prompts and answers of every family against transformers and peft in float64, Gemma's window included."""

from __future__ import annotations

import pytest
import torch

from bespoke.config import Settings, Training
from bespoke.graph import StepBuilder
from bespoke.graph.trace import Tracer
from bespoke.model.spec import ModelSpec
from bespoke.reference.interpreter import Bindings
from tests.gradients.harness import TINY_TILES, Bases, Reference, random_adapter, random_batch, rig, spec
from tests.support.checks import few_of
from tests.support.models import TINY_FAMILIES

LENGTH, RANK = 6, 3
PROMPT = 20  # three pieces and a part, and more than twice Gemma's window


class DoesNothing:
    """A method that does nothing: only the SDK's own sections are looked at."""

    name = "nothing"
    Options = Settings

    def train_step(self, b: StepBuilder, model: ModelSpec, options: Settings) -> None:
        """No instruction."""


@pytest.mark.parametrize("name", few_of(TINY_FAMILIES, ("qwen2", "gemma3_text")))
def test_evaluation_prompt_and_answer_are_those_of_transformers(name: str, bases: Bases, tracer: Tracer) -> None:
    base = bases(name)
    adapter = random_adapter(spec(base, RANK))
    reference = Reference(base, spec(base, RANK), adapter)
    machine = rig(
        base, DoesNothing(), LENGTH, RANK, tracer, training=Training(batch_size=2), tiles=TINY_TILES, answers=True
    )
    machine.buffers.fill(adapter)

    batch = random_batch(base.config, LENGTH, rows=2)
    with torch.no_grad():
        guesses = reference.peft(input_ids=batch.tokens, use_cache=False).logits.argmax(-1)
        loss = float(reference.loss(batch))
    metrics = machine.run("evaluate_step", batch).metrics
    assert metrics["loss_sum"] == pytest.approx(loss * batch.trained, rel=1e-6)
    assert metrics["correct"] == float(((guesses == batch.targets) * batch.mask).sum())

    tokens = random_batch(base.config, PROMPT + 4, rows=2).tokens[:1]
    with torch.no_grad():
        expected = reference.peft(input_ids=tokens, use_cache=False).logits[0]
    for start in range(0, PROMPT, LENGTH):
        piece = tokens[:, start : min(start + LENGTH, PROMPT)]
        padded = torch.nn.functional.pad(piece, (0, LENGTH - piece.shape[1]), value=7)  # overwritten by what follows
        machine.interpreter.run("prefill", Bindings({f"prompt_{LENGTH}": padded}, {"position": start}))
    for position in range(PROMPT, PROMPT + 4):
        bindings = Bindings({"prompt_1": tokens[:, position : position + 1]}, {"position": position})
        logits = machine.interpreter.run("decode", bindings).metrics["logits"][:, 0]
        torch.testing.assert_close(logits.double(), expected[position], rtol=0, atol=1e-5 * float(expected.abs().max()))
