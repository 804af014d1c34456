# SPDX-License-Identifier: Apache-2.0
"""What the defaults do next to other rates, ranks and shares, and with three kinds of messages in three numbers.

A run takes minutes, and up to an hour with 1,000 messages. What was measured is kept (harmless_runs.py).
BESPOKE_FIGURES=print tries the smallest of each and writes nothing.
"""

from __future__ import annotations

import itertools
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.harmless_measure import ratio
from tests.benchmarks.harmless_runs import (
    KEPT,
    REHEARSED,
    Model,
    base,
    base_nats,
    bundle,
    chat_model,
    keep,
    kept_lines,
    result,
    run_of,
)
from tests.benchmarks.message_kinds import KINDS, Kind, Messages
from tests.support.personas import PERSONAS

TRYING = os.environ.get("BESPOKE_FIGURES") == "print"
COUNTS = (50,) if TRYING else (50, 200, 1000)
SETTINGS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "half the rate": {"learning_rate": 1e-4},
    "twice the rate": {"learning_rate": 4e-4},
    "share 0.2": {"general_share": 0.2, "steps": 375},
    "share 0.5": {"general_share": 0.5, "steps": 600},
    "half the steps": {"steps": 214},
    "rank 4": {"rank": 4},
    "rank 16": {"rank": 16},
}


@pytest.fixture(scope="module")
def chat(smollm2: Path) -> Model:
    return chat_model(smollm2)


@pytest.mark.benchmark
def test_other_rates_ranks_and_shares_on_the_same_facts(chat: Model, data_folder: Path, tmp_path: Path) -> None:
    (persona, *_) = PERSONAS
    rows: list[list[Cell]] = []
    for name, given in list(SETTINGS.items())[: 1 if TRYING else None]:
        settings = dict(given)
        model = replace(chat, rank=settings.pop("rank", None))
        run = replace(run_of(model, persona, REHEARSED, 0, data_folder), **settings)
        made = result(model, run, data_folder, tmp_path / "run")
        measured = made.measured
        rows.append(
            [
                name,
                run.steps,
                f"{sum(measured.taught)} of {len(measured.taught)}",
                f"{sum(measured.other)} of {len(measured.other)}",
                str(ratio([measured.behaviour], base_nats(chat))),
                made.refused_because or "accepted",
            ]
        )
        print(rows[-1], flush=True)
        write_table(  # after each row: a benchmark that is stopped leaves what it has measured
            "defaults",
            ("settings", "steps", "facts in the taught words", "in other words", "nats of the base's answers", "gate"),
            rows,
            f"{chat.name}, the {persona}'s facts, seed 0. Steps are those of `steps='auto'` where the settings name none. "
            "Columns as in the table of rehearsal.",
            machine="",
        )


@pytest.mark.benchmark
def test_messages_of_three_kinds_in_three_numbers(chat: Model, data_folder: Path) -> None:
    rows: dict[tuple[Kind, int], list[Cell]] = {}
    for count in COUNTS:
        for kind in KINDS:
            rows[kind, count] = _learned(chat, kind, count, data_folder)
            print(rows[kind, count], flush=True)
            write_table(
                "messages",
                (
                    "messages",
                    "measured",
                    "before",
                    "after",
                    "steps of the run",
                    "best step",
                    "nats of the base's answers",
                    "gate",
                    "MB written",
                ),
                [rows[one] for one in itertools.product(KINDS, COUNTS) if one in rows],
                f"{chat.name} with the defaults, one seed. Facts: where the people of an address book live, added with "
                "`use='train'`. Write like me: replies in plays of Shakespeare; a classifier of characters that saw neither tells "
                "them from the base's answers. Labels: ten of banking77, on 100 unseen texts. Nats: of the gate's behaviour rows, "
                "times the base's own.",
                machine="",
            )


def _learned(model: Model, kind: Kind, count: int, data_folder: Path) -> list[Cell]:
    """The row of the table, measured before or now. A run that was stopped goes on where it was."""
    for line in kept_lines("messages.jsonl"):
        if (line["kind"], line["count"]) == (kind, count):
            row: list[Cell] = line["row"]
            return row
    from bespoke import PersonalModel

    folder = KEPT / "messages" / f"{kind} {count}"
    folder.mkdir(parents=True, exist_ok=True)
    messages = Messages(kind, count, model.asked, [one.text for one in base(model)], data_folder, folder)
    with PersonalModel.open(bundle(model), folder / "state") as learner:
        before = messages.shown_by(learner)
        if len(learner.examples) < count:
            messages.add_to(learner)
        report = learner.train()
        after = messages.shown_by(learner) if report.accepted else None
    planned = report.total_steps if report.stopped_because == "finished" else f"{report.total_steps}, ended early"
    loss, of_base = report.behaviour_loss, report.behaviour_loss_base
    row = [
        f"{kind}, {count:,}",
        before.measured,
        before.text,
        after.text if after else None,
        planned,
        report.best_step,
        f"{loss / of_base:.3f}" if loss and of_base else None,
        report.refused_because or "accepted",
        f"{report.run_bytes_written / 1e6:.0f}",
    ]
    keep("messages.jsonl", {"kind": kind, "count": count, "row": row})
    shutil.rmtree(folder)
    return row
