# SPDX-License-Identifier: Apache-2.0
"""Loss, perplexity and next-token accuracy of an adapter on rows of tokens, and the gate that accepts or refuses one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from bespoke.rules.batches import RowLike, evaluation_batches
from bespoke.rules.report import Evaluation, JudgedOn
from bespoke.runtime.machine import Machine


def evaluate(
    machine: Machine, rows: Sequence[RowLike], adapter: Mapping[str, torch.Tensor] | None, *, examples: int
) -> Evaluation | None:
    """Means over the unmasked tokens of `rows`; None where there are none. `adapter` None: the machine's current one."""
    losses, correct, tokens = 0.0, 0.0, 0
    vocab_size = machine.bundle.manifest.model.config.vocab_size
    for batch in evaluation_batches(rows, machine.method.training.batch_size, machine.sequence_lengths, vocab_size=vocab_size):
        loss_sum, right = machine.evaluate_batch(batch, adapter)
        losses, correct, tokens = losses + loss_sum, correct + right, tokens + batch.tokens_trained
    if not tokens:
        return None
    mean = losses / tokens
    perplexity = math.exp(mean) if mean < 700 else math.inf
    return Evaluation(loss=mean, perplexity=perplexity, accuracy=correct / tokens, tokens=tokens, examples=examples)


@dataclass(frozen=True)
class Judgement:
    """Losses of the adapter that answers now and of the new one, on the same examples, and what follows."""

    judged_on: JudgedOn | None
    before: float | None
    after: float | None
    general_before: float | None
    general_after: float | None
    accepted: bool


@dataclass(frozen=True)
class GateData:
    """Rows that the gate looks at. `judged_on` says what `user` is, `of_tokens` how many tokens it was drawn from."""

    judged_on: JudgedOn | None
    user: Sequence[RowLike]
    of_tokens: int
    general: Sequence[RowLike]
    general_tolerance: float


def predicted(rows: Sequence[RowLike]) -> int:
    """Tokens of the rows but their first ones, which nothing predicts: what looking at them costs."""
    return sum(len(row.tokens) - 1 for row in rows)


def loss_of(machine: Machine, rows: Sequence[RowLike], adapter: Mapping[str, torch.Tensor] | None) -> float | None:
    found = evaluate(machine, rows, adapter, examples=len(rows))
    return None if found is None else found.loss


def judge(
    machine: Machine, data: GateData, before: tuple[float | None, float | None], *, changed: bool
) -> Judgement:
    """Accepted if the user's loss is better and the general one not worse than the tolerance; what is absent is left out.

    `before` are the losses (user's, general) of the adapter that answers now.
    """
    old, old_general = before
    new = loss_of(machine, data.user, None)
    new_general = loss_of(machine, data.general, None)
    better = changed and (old is not None or old_general is not None)
    if old is not None:
        better &= new is not None and new < old
    if old_general is not None:
        limit = old_general * (1 + data.general_tolerance) if old is not None else old_general
        better &= new_general is not None and (new_general <= limit if old is not None else new_general < limit)
    return Judgement(data.judged_on, old, new, old_general, new_general, better)
