# SPDX-License-Identifier: Apache-2.0
"""The newest run of a state as the reference computes it, from what the state says of it: settings, seed and rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from bespoke.bundle.reader import Bundle, read_bundle
from bespoke.config import Training, settings_from
from bespoke.reference.evaluate import evaluate_on
from bespoke.reference.machine import Machine, adapter_tensors, threads_of
from bespoke.reference.torch_settings import computing
from bespoke.reference.train import Journal, Trained, bundle_rows, replay, train
from bespoke.rules.batches import Row
from bespoke.rules.judged import judged_rows
from tests.support.reading import held_out_of_run, newest_run, rows_of_run


@dataclass(frozen=True)
class Expected:
    """All steps of the run, and what the gate measures before and after them on the same rows."""

    trained: Trained
    judged_on: str
    judged_tokens: int
    loss_before: float
    loss: float
    least_gain: float
    general_loss_before: float | None
    general_loss: float | None


def expected_of(bundle: Path, state: Path) -> Expected:
    """Expectations of a run that began with the bundle's own adapter."""
    with read_bundle(bundle) as opened:
        method = newest_run(state)["method"]
        base, trained = opened.initial_adapter(), _trained(opened, state)
        held_out = judging(state)
        rows = held_out or rows_of_run(state)
        user = [rows[number] for number in judged_rows([len(row.tokens) for row in rows])]
        general = bundle_rows(opened, "valid")

        machine = Machine(opened, opened.method(method))

        def loss_of(adapter: Mapping[str, np.ndarray], looked: Sequence[Row]) -> float | None:
            with computing(threads_of(opened)):
                found = evaluate_on(machine, looked, adapter_tensors(adapter), examples=len(looked))
            return None if found is None else found.loss

        adapters = (base, trained.adapter)
        before, after = (loss_of(adapter, user) for adapter in adapters)
        general_before, general_after = (loss_of(adapter, general) for adapter in adapters)
        parts = parts_of(user)
        by_part = np.array([[loss_of(adapter, [part]) for adapter in adapters] for part in parts])
        trained_tokens = np.array([part.mask.sum() for part in parts])
        least = least_gain(by_part[:, 0], by_part[:, 1], trained_tokens, few=len(held_out_of_run(state)) < 10)
        assert before is not None
        assert after is not None
        tokens = sum(len(row.tokens) - 1 for row in user)
        return Expected(
            trained, "validation" if held_out else "train", tokens, before, after, least, general_before, general_after
        )


def parts_of(rows: Sequence[Row]) -> list[Row]:
    """What the gate pairs: the rows, or of fewer than eight each in parts with as many trained tokens in each."""
    parts = -(-8 // len(rows))
    found = []
    for row in rows:
        trained = np.flatnonzero(row.mask)
        for part in range(parts):
            mask = np.zeros_like(row.mask)
            mask[trained[part * len(trained) // parts : (part + 1) * len(trained) // parts]] = 1
            found += [Row(row.tokens, mask)] if mask.any() else []
    return found


def least_gain(before: np.ndarray, after: np.ndarray, tokens: np.ndarray, few: bool) -> float:
    """The standard error of sum(gains) / sum(tokens), a ratio of sums (Cochran, Sampling Techniques, 6.4), times a quantile of
    Student's t: of equally long rows that is the one-sided t test on the mean gain, where luck passes once in forty, or in ten."""
    n = len(tokens)
    gains = (before - after) * tokens
    apart = gains - gains.sum() / tokens.sum() * tokens
    error = np.sqrt(n / (n - 1) * (apart**2).sum()) / tokens.sum()
    return float(scipy.stats.t.ppf(0.9 if few else 0.975, n - 1) * error)


def judging(state: Path) -> list[Row]:
    """Rows of the held-out examples that the gate judges: from four examples on, every second one by the hash of its id."""
    examples = held_out_of_run(state)
    by_hash = sorted((hashlib.sha256(id.encode()).hexdigest(), id) for id, _ in examples)
    choosing = {id for _, id in by_hash[1::2]} if len(examples) >= 4 else set()
    return [row for id, rows in examples if id not in choosing for row in rows]


def trained_alike(bundle: Path, state: Path) -> Trained:
    """All steps of the run, without the gate."""
    with read_bundle(bundle) as opened:
        return _trained(opened, state)


def replayed(bundle: Path, state: Path, journal: Journal) -> dict[str, np.ndarray]:
    """The adapter that a journal of the run makes of the bundle's own."""
    with read_bundle(bundle) as opened:
        run, settings = run_of(state)
        return replay(opened, run["method"], opened.initial_adapter(), journal, seed=run["seed"], settings=settings)


def _trained(bundle: Bundle, state: Path) -> Trained:
    run, settings = run_of(state)
    return train(
        bundle,
        run["method"],
        user_rows=rows_of_run(state),
        general_rows=bundle_rows(bundle, "train"),
        seed=run["seed"],
        settings=settings,
    )


def run_of(state: Path) -> tuple[dict[str, Any], Training]:
    run = newest_run(state)
    settings = settings_from(Training, "training", run["settings"]["training"])
    assert isinstance(settings, Training)
    return run, settings.model_copy(update={"steps": run["steps"]})
