# SPDX-License-Identifier: Apache-2.0
"""What the loss on held-out examples falls by in runs that teach, and in runs whose steps are too small to teach anything.

`Training.useful_gain` lies between the two. BESPOKE_FIGURES=print writes nothing; BESPOKE_SEEDS=N tries so many, as the table
says.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.support.personas import LENGTH, PERSONAS, messages

SEEDS = int(os.environ.get("BESPOKE_SEEDS", "1"))
TEACHING, STEPS = 1e-3, 40
RUNS: dict[str, dict[str, Any]] = {  # what the run is called -> what is asked for
    "mesp, 1e-3": {"method": "mesp", "learning_rate": TEACHING},
    "mesp, 2e-4, the default": {"method": "mesp", "learning_rate": 2e-4},
    "mezo, 1e-3": {"method": "mezo", "learning_rate": TEACHING},
    "mesp, 1e-6": {"method": "mesp", "learning_rate": 1e-6},
    "mesp, 1e-8": {"method": "mesp", "learning_rate": 1e-8},
}
USEFUL, NOISE = tuple(RUNS)[:3], tuple(RUNS)[4:]  # at 1e-6 a little is learned
MESSAGES = (30, 12, 4)  # the user's messages; with 4 none is held out and the gate judges the training examples


@pytest.fixture(scope="module")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bespoke import Lora, Personalizer, Training

    training = Training(steps=STEPS, sequence_lengths=(LENGTH,), batch_size=4)
    methods = {"mesp": {"update": "adamw"}, "mezo": {}}
    out = tmp_path_factory.mktemp("useful-gain") / "bundle"
    return Personalizer(stories, methods, "executorch", lora=Lora(rank=8), training=training, data=None).build(out)


@pytest.mark.benchmark
def test_the_default_lies_between_runs_that_teach_and_runs_that_do_not(
    bundle: Path, data_folder: Path, tmp_path: Path
) -> None:
    from bespoke import Training

    least = Training().useful_gain
    rows: list[list[Cell]] = []
    for name, asked in RUNS.items():
        for count in MESSAGES:
            found = []
            for persona in PERSONAS:
                for seed in range(SEEDS):
                    texts = messages(data_folder, persona)[seed * count :][:count]
                    found.append(trained(bundle, texts, tmp_path / f"{name} {count} {persona} {seed}", seed, asked))
            shares = sorted(report.gain / report.validation_loss_before for report in found)
            small = sum(report.refused_because == "too_small" for report in found)
            accepted = sum(report.accepted for report in found)
            rows.append(
                [
                    name,
                    count,
                    *(f"{share:.2g}" for share in (shares[0], shares[-1])),
                    f"{accepted} of {len(found)}",
                    small,
                ]
            )
            print(rows[-1], flush=True)
            if name in USEFUL:
                assert small == 0, rows
            if name in NOISE:
                assert accepted == 0, rows
                assert shares[-1] < least / 5, rows
    write_table(
        "useful_gain",
        ("method, learning rate", "messages", "least share", "largest share", "accepted", "refused as too small"),
        rows,
        f"stories260K, {STEPS} steps of 4 rows of {LENGTH} tokens, AdamW (mezo: none), rank 8, on messages of the three personas; "
        f"seeds of each: {SEEDS}. Share: of the loss before, by which the loss is lower. Of 4 messages, those of training are "
        f"judged. What is neither accepted nor too small was no better, or may have been luck."
        f" `useful_gain` is {least:g}.",
        machine="",
    )


def trained(bundle: Path, texts: list[str], state: Path, seed: int, asked: dict[str, Any]) -> Any:
    from bespoke import PersonalModel

    with PersonalModel.open(bundle, state, engine="executorch") as model:
        for text in texts:
            model.examples.add({"text": text})
        return model.train(seed=seed, run_steps=STEPS, **asked)
