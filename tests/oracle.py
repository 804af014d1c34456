# SPDX-License-Identifier: Apache-2.0
"""The newest run of a state as the reference computes it, from what the state says of it: settings, seed and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.bundle.reader import Bundle, open_bundle
from bespoke.config import Training, settings_from
from bespoke.reference.evaluate import evaluate
from bespoke.reference.train import Journal, Trained, bundle_rows, replay, train
from bespoke.rules.judged import judged_rows
from tests.reading import newest_run, rows_of_run


@dataclass(frozen=True)
class Expected:
    """All steps of the run, and what the gate measures before and after them on the same rows."""

    trained: Trained
    judged_on: str
    judged_tokens: int
    loss_before: float
    loss: float
    general_loss_before: float | None
    general_loss: float | None


def expected_of(bundle: Path, state: Path) -> Expected:
    """Of a run that began with the bundle's own adapter."""
    with open_bundle(bundle) as opened:
        method = newest_run(state)["method"]
        base, trained = opened.initial_adapter(), _trained(opened, state)
        held_out = rows_of_run(state, "validation")
        rows = held_out or rows_of_run(state)
        user = [rows[number] for number in judged_rows([len(row.tokens) for row in rows])]
        general = bundle_rows(opened, "valid")

        def losses(adapter: Mapping[str, np.ndarray]) -> list[float | None]:
            found = [evaluate(opened, looked, adapter, method=method) for looked in (user, general)]
            return [None if one is None else one.loss for one in found]

        before, after = losses(base), losses(trained.state.adapter)
        assert before[0] is not None
        assert after[0] is not None
        tokens = sum(len(row.tokens) - 1 for row in user)
        return Expected(
            trained, "validation" if held_out else "train", tokens, before[0], after[0], before[1], after[1]
        )


def trained_alike(bundle: Path, state: Path) -> Trained:
    """All steps of the run, without the gate."""
    with open_bundle(bundle) as opened:
        return _trained(opened, state)


def replayed(bundle: Path, state: Path, journal: Journal) -> dict[str, np.ndarray]:
    """The adapter that a journal of the run makes of the bundle's own."""
    with open_bundle(bundle) as opened:
        run, settings = _run(state)
        return replay(opened, run["method"], opened.initial_adapter(), journal, seed=run["seed"], settings=settings)


def _trained(bundle: Bundle, state: Path) -> Trained:
    run, settings = _run(state)
    return train(
        bundle, run["method"], user_rows=rows_of_run(state), general_rows=bundle_rows(bundle, "train"), seed=run["seed"],
        settings=settings,
    )  # fmt: skip


def _run(state: Path) -> tuple[dict[str, Any], Training]:
    run = newest_run(state)
    settings = settings_from(Training, "training", run["settings"]["training"])
    assert isinstance(settings, Training)
    return run, settings.model_copy(update={"steps": run["steps"]})
