# SPDX-License-Identifier: Apache-2.0
"""The device core compared with the reference: the same bundle, the same examples."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bespoke import Lora, Personalizer, PersonalModel, Training
from tests.support.oracle import replayed, trained_alike
from tests.support.reading import accepted, journal

FEW, MANY = 10, 50
LENGTH, RANK = 24, 4
LOSS_TOLERANCE = 1e-5
ADAPTER_TOLERANCE = {"sgd": 1e-4, "adamw": 1e-3}
REPLAY_TOLERANCE = 1e-6


def bundle_of(model: Path, out: Path, methods: dict[str, Any], training: Training, lora: Lora | None = None) -> Path:
    lora = lora or Lora(rank=RANK)
    Personalizer(model, methods, "executorch", lora=lora, training=training, licence="apache-2.0", data=None).build(out)
    return out


def examples(model: PersonalModel, count: int = 4) -> None:
    """Rows of random tokens, of different lengths, some of their tokens masked."""
    rng = np.random.default_rng(7)
    longest = max(model._bundle.manifest.sequence_lengths) + 1
    for number in range(count):
        length = longest - 3 * number
        mask = (rng.random(length) < 0.8).astype(int)
        mask[-1] = 1
        tokens = rng.integers(3, model._bundle.manifest.text.vocab_size, length)
        model.examples.add({"tokens": tokens.tolist(), "mask": mask.tolist()}, id=str(number))


def trained(bundle: Path, state: Path, method: str, seed: int, steps: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Losses of so many steps of the core, and the adapter after them, which the gate accepts: it has seen what it is judged on."""
    with PersonalModel.open(bundle, state, engine="executorch") as model:
        examples(model)
        report = model.train(run_steps=steps, method=method, seed=seed)
    assert (report.runtime, report.steps, report.accepted) == ("core", steps, True)
    return np.array(report.losses), accepted(state)


def farthest(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> float:
    """Largest norm of a piece's difference, as a share of its norm."""
    assert got.keys() == want.keys()
    return max(float(np.linalg.norm(got[name] - want[name]) / np.linalg.norm(want[name])) for name in want)


def compare(
    bundle: Path, place: Path, update: str, methods: tuple[str, ...], *, seeds: int = 1, steps: int = FEW
) -> None:
    with PersonalModel.open(bundle, place / "verified", engine="executorch") as model:
        assert model._engine.verify()["golden"]
    for method in methods:
        worst_loss = worst_adapter = 0.0
        for seed in range(seeds):
            state = place / f"{method}-{seed}"
            losses, adapter = trained(bundle, state, method, seed, steps)
            wanted = trained_alike(bundle, state)
            want_losses = np.array(wanted.losses)
            worst_loss = max(
                worst_loss, float(np.max(np.abs(losses - want_losses) / np.maximum(1, np.abs(want_losses))))
            )
            worst_adapter = max(worst_adapter, farthest(adapter, wanted.adapter))
        print(f"| {bundle.stem} | {method}, {update} | {seeds} | {worst_loss:.1e} | {worst_adapter:.1e} |")
        assert worst_loss <= LOSS_TOLERANCE, (bundle.stem, method, update)
        assert worst_adapter <= ADAPTER_TOLERANCE[update], (bundle.stem, method, update)


def replay(bundle: Path, place: Path, steps: int = FEW) -> None:
    """A journal of the core, replayed by the core and by the reference: both make the adapter that the run made."""
    state = place / "written"
    with PersonalModel.open(bundle, state, engine="executorch") as model:
        length = max(model._bundle.manifest.sequence_lengths) + 1
        model.examples.add(
            {"tokens": [5] * length, "mask": [1] * length}
        )  # it gets better everywhere: no luck to the gate
        report = model.train(run_steps=steps, method="mezo", seed=3)
    assert report.accepted, report.why_refused
    made = accepted(state)
    wanted = replayed(bundle, state, journal(state))
    with sqlite3.connect(state / "state.sqlite") as database:  # as if it had been killed before the gate
        database.execute("UPDATE runs SET ended_because = NULL, ended_at = NULL")
        database.execute("DELETE FROM versions")
    database.close()
    with PersonalModel.open(bundle, state, engine="executorch") as model:
        report = model.train(method="mezo")
    assert (report.steps, report.accepted, report.stopped_because) == (0, True, "finished")
    apart, from_run = farthest(accepted(state), wanted), farthest(accepted(state), made)
    print(f"| {bundle.stem} | mezo, replayed journal | 1 | - | {apart:.1e} |")
    assert max(float(np.abs(t).max()) for name, t in made.items() if name.endswith("lora_B")) > 0
    assert apart <= REPLAY_TOLERANCE
    assert from_run <= REPLAY_TOLERANCE
