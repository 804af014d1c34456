# SPDX-License-Identifier: Apache-2.0
"""What 60 corrected answers of a style change on prompts that were never trained: short answers, and formal ones.

Run: pytest -m benchmark tests/benchmarks/test_preferences.py. Needs SmolLM2 (tests/conftest.py). It takes minutes.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.benchmarks.figures import Cell, write_table

from bespoke import Personalizer, PersonalModel, Training

PAIRS = Path(__file__).with_name("harmless") / "preferences.jsonl"
STYLES = ("short", "formal")
HOW = ("chosen", "simpo")  # the better answer alone, and both
STEPS, LENGTH, MOST_TOKENS = 240, 128, 64
HEADER = ("style", "learned", "mean characters", "with a contraction", "margin, nats a token", "accepted")
CONTRACTION = re.compile(r"\b\w+['\u2019](s|t|re|ll|ve|d|m)\b", re.IGNORECASE)


class Shown(NamedTuple):
    """What a model's answers to the unseen prompts are like, and how much likelier it finds the better answers of the pairs."""

    characters: float
    with_contraction: float
    margin: float


def read(path: Path = PAIRS) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The pairs by style, and the unseen prompts."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = {style: [row for row in rows if row.get("style") == style] for style in STYLES}
    return pairs, [row["prompt"] for row in rows if row["split"] == "unseen"]


def asked(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def shown(model: PersonalModel, prompts: Sequence[str], pairs: Sequence[dict[str, Any]]) -> Shown:
    answers = ["".join(model.generate(asked(prompt), max_tokens=MOST_TOKENS)) for prompt in prompts]
    margins = []
    for pair in pairs:
        better, worse = model.score(asked(pair["prompt"]), [pair["chosen"], pair["rejected"]])
        margins.append(better.log_probability / better.tokens - worse.log_probability / worse.tokens)
    return Shown(
        statistics.fmean(map(len, answers)),
        statistics.fmean(bool(CONTRACTION.search(answer)) for answer in answers),
        statistics.fmean(margins),
    )


def cells(style: str, learned: str, found: Shown, accepted: str | None) -> list[Cell]:
    return [
        style,
        learned,
        f"{found.characters:.0f}",
        f"{found.with_contraction:.0%}",
        f"{found.margin:.2f}",
        accepted,
    ]


@pytest.mark.benchmark
def test_corrected_answers_change_the_style_of_other_answers(smollm2: Path, tmp_path: Path) -> None:
    pairs, prompts = read()
    assert [len(pairs[style]) for style in STYLES] == [60, 60]
    assert len(prompts) == 40
    training = Training(sequence_lengths=(LENGTH,), batch_size=2, steps=STEPS)
    rows: list[list[Cell]] = []
    found: dict[tuple[str, str], Shown] = {}
    for how in HOW:
        bundle = tmp_path / f"{how}.bundle"
        Personalizer(smollm2, {"mesp": {"preferences": how}}, "executorch", training=training).build(bundle)
        for style in STYLES:
            with PersonalModel.open(bundle, tmp_path / f"{how}_{style}") as model:
                if how == HOW[0]:
                    found[style, "base"] = shown(model, prompts, pairs[style])
                    rows.append(cells(style, "nothing", found[style, "base"], None))
                for pair in pairs[style]:
                    answer = [*asked(pair["prompt"]), {"role": "assistant", "content": pair["rejected"]}]
                    model.correct(answer, pair["chosen"])
                report = model.train()
                found[style, how] = shown(model, prompts, pairs[style])
                verdict = "yes" if report.accepted else f"no: {report.why_refused}"
                rows.append(cells(style, "better answers" if how == "chosen" else "pairs", found[style, how], verdict))
    write_table(
        "preferences",
        HEADER,
        sorted(rows, key=lambda row: STYLES.index(str(row[0]))),
        f"SmolLM2-135M-Instruct, `mesp`, AdamW, {STEPS} steps of 2 rows of {LENGTH} tokens, rank 8; 60 pairs a style. "
        f"Characters and contractions: of greedy answers of at most {MOST_TOKENS} tokens to {len(prompts)} prompts that were "
        "in no pair. Margin: by how much the mean log-probability of the better answers of the pairs is above that of the "
        "others. One seed.",
    )
    assert found["short", "simpo"].characters < found["short", "base"].characters
    assert all(found[style, "simpo"].margin > found[style, "base"].margin for style in STYLES)
