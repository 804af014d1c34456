# SPDX-License-Identifier: Apache-2.0
"""Loss, perplexity and next-token accuracy of an adapter on rows of tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from bespoke.bundle.reader import Bundle
from bespoke.reference.machine import Machine, adapter_tensors, threads_of
from bespoke.reference.torch_settings import computing
from bespoke.rules.batches import RowLike, evaluation_batches
from bespoke.rules.report import Evaluation


def evaluate(
    bundle: Bundle,
    rows: Sequence[RowLike],
    adapter: Mapping[str, np.ndarray] | None = None,
    *,
    method: str | None = None,
    examples: int | None = None,
) -> Evaluation | None:
    """Means over the unmasked tokens of `rows`, None if there are no such tokens.

    adapter:  by default the bundle's initial adapter, which changes nothing
    method:   sets the batch size and the sequence lengths; by default the bundle's first
    examples: the number of examples that the rows come from; by default that of the rows
    """
    with computing(threads_of(bundle)):
        machine = Machine(bundle, bundle.method(method))
        tensors = adapter_tensors(bundle.initial_adapter() if adapter is None else adapter)
        return evaluate_on(machine, rows, tensors, examples=len(rows) if examples is None else examples)


def evaluate_on(
    machine: Machine, rows: Sequence[RowLike], adapter: Mapping[str, torch.Tensor] | None, *, examples: int
) -> Evaluation | None:
    """`evaluate` on an existing machine. Without an adapter it uses the machine's current one."""
    losses, correct, tokens = 0.0, 0.0, 0
    vocab_size = machine.bundle.manifest.model.config.vocab_size
    for batch in evaluation_batches(
        rows, machine.method.training.batch_size, machine.sequence_lengths, vocab_size=vocab_size
    ):
        loss_sum, right = machine.evaluate_batch(batch, adapter)
        losses, correct, tokens = losses + loss_sum, correct + right, tokens + batch.tokens_trained
    if not tokens:
        return None
    mean = losses / tokens
    perplexity = math.exp(mean) if mean < 700 else math.inf
    return Evaluation(loss=mean, perplexity=perplexity, accuracy=correct / tokens, tokens=tokens, examples=examples)
