# SPDX-License-Identifier: Apache-2.0
"""Facts that a pretrained model answers: alone, with the user's nearest notes in the prompt, with a trained adapter, and with both.

The notes are the sentences that a persona's questions are about, among sentences of the other personas. The adapter learned the
persona's questions with the defaults (harmless_runs.py keeps it). It is copied into a state of notes alone, so no note holds a
question with its answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.harmless_runs import bundle, chat_model, learned_state
from tests.support.personas import PERSONAS, messages, questions

from bespoke import PersonalModel

PERSONA = "student"
COUNTS = (20, 100, 500)  # of notes
LEAST_CHARACTERS = 30  # of a sentence that is a note
MOST_TOKENS = 48
HEADER = ("notes", "questions", "base", "base with notes", "adapter", "adapter with notes")


@pytest.mark.benchmark
def test_facts_with_notes_in_the_prompt(smollm2: Path, data_folder: Path, tmp_path: Path) -> None:
    chat = chat_model(smollm2)
    with PersonalModel.open(bundle(chat), learned_state(chat, PERSONA, data_folder)) as learned:
        adapter = learned.export_adapter(tmp_path / "adapter")
    asked = questions(data_folder, PERSONA)
    rows: list[list[Cell]] = []
    alone: dict[bool, list[bool]] = {}  # by whether the adapter answers; the notes make no difference
    for count in COUNTS:
        notes = _notes(data_folder, count)
        kept = [row for row in asked if row["source"] in notes]
        cells: list[Cell] = []
        for trained in (False, True):
            with PersonalModel.open(bundle(chat), tmp_path / f"{count} {trained}") as model:
                for note in notes:
                    model.examples.add({"text": note})
                if trained:
                    model.import_adapter(adapter)
                if trained not in alone:
                    alone[trained] = [_is_right(model, row, notes=False) for row in asked]
                right = [one for one, row in zip(alone[trained], asked, strict=True) if row in kept]
                cells += [_share(right), _share([_is_right(model, row, notes=True) for row in kept])]
        rows.append([count, len(kept), *cells])
        print(rows[-1], flush=True)
    write_table(
        "retrieval",
        HEADER,
        rows,
        f"{chat.name}, int4, greedy, at most {MOST_TOKENS} tokens: questions of the persona `{PERSONA}` whose right answer occurs "
        "in the model's answer. The notes are the sentences that hold the answers, and sentences of the other personas. Only "
        "questions whose note is there are counted.",
    )


def _notes(data_folder: Path, count: int) -> list[str]:
    """The sources of the persona's questions, at most `count`, and sentences of the other personas."""
    sources = list(dict.fromkeys(row["source"] for row in questions(data_folder, PERSONA)))[:count]
    others = [
        sentence
        for other in PERSONAS
        if other != PERSONA
        for message in messages(data_folder, other)
        for sentence in re.split(r"(?<=[.!?])\s+", message)
        if len(sentence) >= LEAST_CHARACTERS
    ]
    notes = sources + random.Random(0).sample(list(dict.fromkeys(others)), count - len(sources))
    random.Random(1).shuffle(notes)
    return notes


def _is_right(model: PersonalModel, row: dict[str, Any], *, notes: bool) -> bool:
    asked = [{"role": "user", "content": row["question"]}]
    answer = "".join(model.generate(asked, max_tokens=MOST_TOKENS, notes=notes)).lower()
    return any(re.search(rf"(?<!\w){re.escape(wanted.lower())}(?!\w)", answer) for wanted in row["answers"])


def _share(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)}"
