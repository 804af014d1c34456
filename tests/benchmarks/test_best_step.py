# SPDX-License-Identifier: Apache-2.0
"""What the best step of a run is worth to a user, and how often a run that learned nothing is accepted by luck.

BESPOKE_FIGURES=print tries it with a tenth of the seeds and writes nothing.
"""

from __future__ import annotations

import os
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.personas import LENGTH, PERSONAS, messages

TRYING = os.environ.get("BESPOKE_FIGURES") == "print"
SEEDS, LUCKY_SEEDS, STEPS = (1, 20, 300) if TRYING else (5, 200, 300)
RATE = 1e-3
MOST_LUCKY, LEAST_ACCEPTED = 0.05, 0.90
UNSEEN = 4  # of so many messages one is neither trained on nor held out


@pytest.fixture(scope="module")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bespoke import Lora, Personalizer, Training

    training = Training(learning_rate=RATE, steps=STEPS, sequence_lengths=(LENGTH,), batch_size=4)
    out = tmp_path_factory.mktemp("best-step") / "bundle"
    return Personalizer(stories, "mesp", "executorch", lora=Lora(rank=8), training=training, data=None).build(out)


@pytest.mark.benchmark
def test_a_persona_is_met_better_at_the_best_step_than_at_the_last(
    bundle: Path, data_folder: Path, tmp_path: Path
) -> None:
    rows: list[list[Cell]] = []
    verdicts = []
    for persona in PERSONAS:
        found = [trained(bundle, messages(data_folder, persona), tmp_path / f"{persona}-{seed}", seed) for seed in range(SEEDS)]
        verdicts += [one["accepted"] for one in found]
        before, best, last = (statistics.mean(one[name] for one in found) for name in ("before", "best", "last"))
        steps = sorted(one["step"] for one in found)
        rows.append([persona, before, best, f"{steps[0]} to {steps[-1]}", last, f"{sum(o['accepted'] for o in found)} of {SEEDS}"])
        print(rows[-1], flush=True)
    write_table(
        "best_step", ("persona", "loss before", "at the best step", "which was", f"after all {STEPS} steps", "accepted"), rows,
        f"stories260K, `mesp`, {STEPS} steps of 4 rows of {LENGTH} tokens, AdamW, {RATE:g}, rank 8; {SEEDS} seeds. Losses in nats "
        f"a token, on one message of {UNSEEN} that was neither trained on nor held out: nothing chose or judged by it.", machine="",
    )  # fmt: skip
    assert sum(verdicts) >= LEAST_ACCEPTED * len(verdicts)


def trained(bundle: Path, words: list[str], place: Path, seed: int) -> dict[str, Any]:
    """Losses on messages that no part of a run has seen: before, with the adapter of the best step, with that of the last one."""
    from bespoke import PersonalModel

    random.Random(seed).shuffle(words)
    unseen, given = [{"text": text} for text in words[::UNSEEN]], [text for n, text in enumerate(words) if n % UNSEEN]
    with PersonalModel.open(bundle, place / "best", runtime="core") as model:
        before = model.evaluate(unseen).loss
        splits = [model.examples.add({"text": text}, id=str(number)).split for number, text in enumerate(given)]
        report = model.train(seed=seed)
        best = model.evaluate(unseen).loss
    with PersonalModel.open(bundle, place / "last", runtime="core") as model:  # the same run, with nothing held out
        for number, text in enumerate(given):
            if splits[number] == "train":
                model.examples.add({"text": text}, id=str(number), use="train")
        whole = model.train(seed=seed)
        last = model.evaluate(unseen).loss
    assert whole.losses[: report.total_steps] == report.losses
    return {"before": before, "best": best, "last": last, "step": report.best_step, "accepted": report.accepted}


@pytest.mark.benchmark
def test_of_runs_that_learned_nothing_at_most_one_in_twenty_is_accepted(bundle: Path, tmp_path: Path) -> None:
    """Random tokens at a rate that hardly moves the adapter: there is nothing to learn, and the loss falls or rises by chance."""
    from bespoke import PersonalModel

    rows: list[list[Cell]] = []
    for count in (12, 30, 80):
        accepted = better = 0
        for seed in range(LUCKY_SEEDS):
            chance = random.Random(f"{count} {seed}")
            with PersonalModel.open(bundle, tmp_path / f"{count}-{seed}", runtime="core") as model:
                for number in range(count):
                    tokens = [chance.randrange(3, 512) for _ in range(chance.randint(20, LENGTH))]
                    model.examples.add({"tokens": tokens}, id=f"{seed}-{number}")
                report = model.train(steps=40, seed=seed, learning_rate=1e-6)
            accepted += report.accepted
            better += report.gain > 0
        rows.append([count, f"{better} of {LUCKY_SEEDS}", f"{accepted} of {LUCKY_SEEDS}"])
        print(rows[-1], flush=True)
        assert accepted <= MOST_LUCKY * LUCKY_SEEDS + 2 * (LUCKY_SEEDS * 0.05 * 0.95) ** 0.5, rows
    write_table(
        "luck", ("examples of the user", "runs whose loss was better", "accepted"), rows,
        f"stories260K, `mesp`, 40 steps at a rate of 1e-6 on random tokens: nothing can be learned. {LUCKY_SEEDS} seeds.",
        machine="",
    )  # fmt: skip
