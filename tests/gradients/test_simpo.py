# SPDX-License-Identifier: Apache-2.0
"""`mesp` and `mebp` on pairs of answers, against TRL's SimPO loss and autograd through transformers and peft in float64."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.nn import functional as F

from bespoke.config import Training
from bespoke.errors import ConfigError
from bespoke.graph.trace import Tracer
from bespoke.testing.tiny import TokenBatch
from tests.gradients.harness import (
    LOSS_TOLERANCE,
    TOLERANCE,
    Base,
    Bases,
    Reference,
    random_adapter,
    random_batch,
    rig,
    spec,
    worst_error,
)
from tests.gradients.trl_loss import simpo_loss
from tests.support.checks import few_rows_of

LENGTH, RANK = 17, 3
OPTIONS = {"preferences": "simpo", "simpo_beta": 1.5, "simpo_gamma": 0.25, "chosen_weight": 0.5}


def batch_of(base: Base, pairs: int, singles: int, seed: int) -> TokenBatch:
    """Rows of random tokens with gaps in their masks: a chosen and a rejected answer in turn, then rows that are alone."""
    whole = random_batch(base.config, LENGTH, rows=2 * pairs + singles + 1, seed=seed)
    tokens, targets, mask = (part[:-1].contiguous() for part in (whole.tokens, whole.targets, whole.mask))
    array = torch.zeros_like(mask)
    array[: 2 * pairs] = 1
    return TokenBatch(tokens, targets, mask, {"pairs": array})


def trained_tokens(batch: TokenBatch, pairs: int) -> tuple[float, float]:
    """Tokens of the chosen answers, and of the rows that are alone."""
    return float(batch.mask[: 2 * pairs : 2].sum()), float(batch.mask[2 * pairs :].sum())


def expected_loss(reference: Reference, batch: TokenBatch, pairs: int, options: dict[str, float]) -> torch.Tensor:
    """TRL's loss of the pairs and the cross entropy of the other rows, weighted by their trained tokens."""
    logits = reference.peft(input_ids=batch.tokens, use_cache=False).logits
    order = [*range(0, 2 * pairs, 2), *range(1, 2 * pairs, 2)]
    settings = {"beta": options["simpo_beta"], "gamma": options["simpo_gamma"], "alpha": options["chosen_weight"]}
    of_pairs = simpo_loss(logits[order], batch.targets[order], batch.mask[order], **settings)
    in_pairs, alone = trained_tokens(batch, pairs)
    if not alone:
        return of_pairs
    labels = batch.targets[2 * pairs :].masked_fill(batch.mask[2 * pairs :] == 0, -100)
    of_others = F.cross_entropy(logits[2 * pairs :].flatten(0, 1), labels.flatten(), ignore_index=-100)
    return (in_pairs * of_pairs + alone * of_others) / (in_pairs + alone)


CASES = (
    *product(("llama",), ("mesp", "mebp"), ((1, 0), (2, 1), (1, 2))),
    ("gemma3_text", "mesp", (2, 0)),
    ("qwen3", "mebp", (2, 0)),
)


@pytest.mark.parametrize(("family", "method", "rows"), few_rows_of(CASES, (1, 4)))
def test_gradients_of_pairs_are_those_of_trl_and_peft(
    family: str, method: str, rows: tuple[int, int], bases: Bases, tracer: Tracer
) -> None:
    base, (pairs, singles) = bases(family), rows
    adapter, batch = random_adapter(spec(base, RANK), seed=1), batch_of(base, pairs, singles, seed=5)
    reference = Reference(base, spec(base, RANK), adapter)
    wanted = expected_loss(reference, batch, pairs, OPTIONS)  # type: ignore[arg-type]
    names = list(reference.parameters)
    expected = torch.autograd.grad(wanted, [reference.parameters[name] for name in names])

    made = rig(base, method, LENGTH, RANK, tracer, rows=2 * pairs + singles, options=OPTIONS)
    made.scalars["batch_tokens"] = sum(trained_tokens(batch, pairs))
    loss, found = made.gradients(adapter, batch)
    assert loss == pytest.approx(float(wanted.detach()), rel=LOSS_TOLERANCE)
    error, where = worst_error(found, {name: g.numpy() for name, g in zip(names, expected, strict=True)})
    assert error <= TOLERANCE, where


@pytest.mark.parametrize("method", ["mesp", "mebp"])
def test_a_batch_without_pairs_has_the_gradients_of_the_mean_loss(method: str, bases: Bases, tracer: Tracer) -> None:
    base = bases("llama")
    adapter, batch = random_adapter(spec(base, RANK), seed=1), batch_of(base, 0, 3, seed=5)
    reference_loss, expected = Reference(base, spec(base, RANK), adapter).gradients(batch)
    loss, found = rig(base, method, LENGTH, RANK, tracer, options=OPTIONS).gradients(adapter, batch)
    assert loss == pytest.approx(reference_loss, rel=LOSS_TOLERANCE)
    error, where = worst_error(found, expected)
    assert error <= TOLERANCE, where


def test_batches_of_one_row_cannot_hold_a_pair(bases: Bases, tracer: Tracer) -> None:
    with pytest.raises(ConfigError, match=r"batch_size.*2 or more with preferences = 'simpo'"):
        rig(bases("llama"), "mesp", LENGTH, RANK, tracer, training=Training(batch_size=1), options=OPTIONS)
