# SPDX-License-Identifier: Apache-2.0
"""Each method at its own default rate, and at multiples of it: stories260K on one persona's messages, few and all of them.

Everything but the rate is the SDK's default. BESPOKE_FIGURES=print tries it with a tenth of the steps and writes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.support.personas import LENGTH, messages

TRYING = os.environ.get("BESPOKE_FIGURES") == "print"
STEPS = 30 if TRYING else 300
METHODS = {"mesp": {"update": "adamw"}, "mebp": {"update": "sgd"}, "mezo": {}}
TIMES = (0.25, 1, 4, 8)
SEEDS = {"mesp": 1, "mebp": 1, "mezo": 5}  # what one draws of noise is another's luck
MESSAGES = {"6 messages": 6, "all messages": 1000}


@pytest.mark.benchmark
def test_no_method_makes_a_model_worse_at_its_own_rate(stories: Path, data_folder: Path, tmp_path: Path) -> None:
    from bespoke import Personalizer, PersonalModel, Training

    personalizer = Personalizer(
        stories, METHODS, "executorch", training=Training(sequence_lengths=(LENGTH,)), data=None
    )
    bundle = personalizer.build(tmp_path / "bundle")
    rows: list[list[Cell]] = []
    worse: dict[str, int] = {}
    for method in personalizer.request.methods:
        for words, count in MESSAGES.items():
            cells: list[Cell] = []
            for times in TIMES:
                after: list[float] = []
                before = 0.0
                for seed in range(SEEDS[method.name]):
                    place = tmp_path / f"{method.name} {words} {times} {seed}"
                    with PersonalModel.open(bundle, place) as model:
                        for number, text in enumerate(messages(data_folder, "customer")[:count]):
                            model.examples.add({"text": text}, id=str(number))
                        rate = times * method.training.learning_rate
                        report = model.train(run_steps=STEPS, method=method.name, seed=seed, learning_rate=rate)
                    assert report.validation_loss is not None
                    assert report.validation_loss_before is not None
                    before = report.validation_loss_before
                    after.append(report.validation_loss)
                if times == 1:
                    worse[f"{method.name}, {words}"] = sum(loss >= before for loss in after)
                cells.append(f"{min(after):.2f}" if len(after) == 1 else f"{min(after):.2f} to {max(after):.2f}")
            named = f"`{method.name}`" + (f", {METHODS[method.name]['update']}" if METHODS[method.name] else "")
            rows.append([named, f"{method.training.learning_rate:g}", words, f"{before:.2f}", *cells])
            print(rows[-1], flush=True)
    write_table(
        "rates",
        ("method", "default rate", "learned from", "loss before", *(f"at {times:g} times" for times in TIMES)),
        rows,
        f"stories260K, the customer's messages, {STEPS} steps of one row of {LENGTH} tokens; nats a token on what was held "
        f"out; `mezo`: the best and the worst of {SEEDS['mezo']} seeds.",
        machine="",
    )
    assert TRYING or not any(worse.values()), worse
