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
from tests.support.personas import LENGTH, PERSONAS, messages

TRYING = os.environ.get("BESPOKE_FIGURES") == "print"
SEEDS, LUCKY_SEEDS, STEPS = (1, 40, 300) if TRYING else (5, 200, 300)
RATE = 1e-3
MOST_LUCKY, LEAST_ACCEPTED = 0.05, 0.90
POOL = 400  # texts, of which each run draws some
UNSEEN = 4  # one in this many messages is neither trained on nor held out


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
        found = [
            trained(bundle, messages(data_folder, persona), tmp_path / f"{persona}-{seed}", seed)
            for seed in range(SEEDS)
        ]
        verdicts += [one["accepted"] for one in found]
        before, best, last = (statistics.mean(one[name] for one in found) for name in ("before", "best", "last"))
        steps = sorted(one["step"] for one in found)
        rows.append(
            [
                persona,
                before,
                best,
                f"{steps[0]} to {steps[-1]}",
                last,
                f"{sum(o['accepted'] for o in found)} of {SEEDS}",
            ]
        )
        print(rows[-1], flush=True)
    write_table(
        "best_step",
        ("persona", "loss before", "at the best step", "which was", f"after all {STEPS} steps", "accepted"),
        rows,
        f"stories260K, `mesp`, {STEPS} steps of 4 rows of {LENGTH} tokens, AdamW, {RATE:g}, rank 8; {SEEDS} seeds. Losses in nats "
        f"a token, on one message of {UNSEEN} that was neither trained on nor held out: nothing chose or judged by it.",
        machine="",
    )
    assert sum(verdicts) >= LEAST_ACCEPTED * len(verdicts)


def trained(bundle: Path, words: list[str], place: Path, seed: int) -> dict[str, Any]:
    """Losses on messages that no part of a run has seen: before, with the adapter of the best step, with that of the last one."""
    from bespoke import PersonalModel

    random.Random(seed).shuffle(words)
    unseen, given = [{"text": text} for text in words[::UNSEEN]], [text for n, text in enumerate(words) if n % UNSEEN]
    with PersonalModel.open(bundle, place / "best", engine="executorch") as model:
        before = model.evaluate(unseen).loss
        splits = [model.examples.add({"text": text}, id=str(number)).split for number, text in enumerate(given)]
        report = model.train(seed=seed)
        best = model.evaluate(unseen).loss
    with PersonalModel.open(
        bundle, place / "last", engine="executorch"
    ) as model:  # the same run, with nothing held out
        for number, text in enumerate(given):
            if splits[number] == "train":
                model.examples.add({"text": text}, id=str(number), use="train")
        whole = model.train(seed=seed)
        last = model.evaluate(unseen).loss
    assert whole.losses[: report.total_steps] == report.losses
    return {"before": before, "best": best, "last": last, "step": report.best_step, "accepted": report.accepted}


@pytest.mark.benchmark
def test_of_runs_that_learned_nothing_at_most_one_in_twenty_is_accepted(bundle: Path, tmp_path: Path) -> None:
    """On texts drawn from the model itself, which no model predicts better: at a tiny rate the loss falls or rises by chance."""
    from bespoke import PersonalModel

    with PersonalModel.open(bundle, tmp_path / "pool", engine="executorch") as model:
        drawn = [
            list(model.generate_ids([1], max_tokens=LENGTH - 1, temperature=1.0, seed=seed)) for seed in range(POOL)
        ]
    pool = [[1, *tokens] for tokens in drawn]
    rows: list[list[Cell]] = []
    for rate, count in ((RATE, 12), (RATE, 30), (RATE, 120), (1e-5, 12), (1e-5, 30), (1e-5, 120)):
        accepted = better = 0
        for seed in range(LUCKY_SEEDS):
            chance = random.Random(f"{rate} {count} {seed}")
            with PersonalModel.open(bundle, tmp_path / f"{rate}-{count}-{seed}", engine="executorch") as model:
                for number, tokens in enumerate(chance.sample(pool, count)):
                    model.examples.add({"tokens": tokens}, id=f"{seed}-{number}")
                report = model.train(run_steps=40, seed=seed, learning_rate=rate)
            accepted += report.accepted
            better += report.gain > 0
        rows.append([f"{rate:g}", count, f"{better} of {LUCKY_SEEDS}", f"{accepted} of {LUCKY_SEEDS}"])
        print(rows[-1], flush=True)
    write_table(
        "luck",
        ("learning rate", "examples of the user", "runs whose loss was better", "accepted"),
        rows,
        "stories260K, `mesp`, 40 steps on texts that were drawn from the model itself at temperature 1, from which nothing can be "
        "learned. At 1e-3, a rate that teaches, training does harm; at 1e-5 it is better or worse by chance. "
        f"{LUCKY_SEEDS} seeds.",
        machine="",
    )
    taught = [int(str(row[3]).split()[0]) for row in rows if row[0] == f"{RATE:g}"]
    assert max(taught) <= MOST_LUCKY * LUCKY_SEEDS, rows
