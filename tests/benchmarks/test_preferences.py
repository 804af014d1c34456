# SPDX-License-Identifier: Apache-2.0
"""What 60 corrected answers of a style change on prompts that were never trained: short answers, and formal ones.

Needs SmolLM2 (tests/conftest.py). It takes more than an hour; what was measured is kept (harmless_runs.py).
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.harmless_runs import keep, kept_lines

from bespoke import Personalizer, PersonalModel, Training

PAIRS = Path(__file__).with_name("harmless") / "preferences.jsonl"
STYLES = ("short", "formal")
KEPT = "preferences.jsonl"
HOW = ("chosen", "simpo")  # the better answer alone, and both
LENGTH, MOST_TOKENS = 128, 64
RUN: dict[str, Any] = {"run_steps": 200, "learning_rate": 1e-4, "general_share": 0.7}
HEADER = (
    "style",
    "learned",
    "mean characters",
    "with a contraction",
    "margin, nats a token",
    "nats of the base's answers",
    "kept of the change",
    "gate",
)
CONTRACTION = re.compile(r"\b\w+['\u2019](s|t|re|ll|ve|d|m)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Shown:
    """What a model's answers to the unseen prompts are like, and how much likelier it finds the better answers of the pairs."""

    characters: float
    with_contraction: float
    margin: float


@dataclass(frozen=True)
class Learned:
    """What a run made of a model. `behaviour`: the loss on the gate's behaviour rows, times the base's own."""

    shown: Shown
    behaviour: float | None
    adapter_scale: float | None
    refused_because: str | None


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


def of_base(model: PersonalModel, style: str) -> Shown:
    """What the base shows, from the file if it was measured before."""
    run = {"style": style, "learned": None}
    for line in kept_lines(KEPT):
        if line["run"] == run:
            return Shown(**line["shown"])
    pairs, prompts = read()
    measured = shown(model, prompts, pairs[style])
    keep(KEPT, {"run": run, "shown": asdict(measured)})
    return measured


def learned(model: PersonalModel, style: str, how: str) -> Learned:
    """What the model shows once it has learned a style, from the file if it was measured before."""
    run = {"style": style, "learned": how, **RUN}
    for line in kept_lines(KEPT):
        if line["run"] == run:
            return Learned(**{**line["result"], "shown": Shown(**line["result"]["shown"])})
    pairs, prompts = read()
    for pair in pairs[style]:
        model.correct([*asked(pair["prompt"]), {"role": "assistant", "content": pair["rejected"]}], pair["chosen"])
    report = model.train(**RUN)
    loss, base_loss = report.behaviour_loss, report.behaviour_loss_base
    result = Learned(
        shown(model, prompts, pairs[style]),
        loss / base_loss if loss is not None and base_loss else None,
        report.adapter_scale,
        report.refused_because,
    )
    keep(KEPT, {"run": run, "result": asdict(result)})
    return result


def cells(style: str, how: str, answers: Shown, result: Learned | None = None) -> list[Cell]:
    behaviour, scale, verdict = None, None, None
    if result is not None:
        behaviour, verdict = result.behaviour, result.refused_because or "accepted"
        if result.refused_because is None:
            scale = 1.0 if result.adapter_scale is None else result.adapter_scale
    return [
        style,
        how,
        f"{answers.characters:.0f}",
        f"{answers.with_contraction:.0%}",
        f"{answers.margin:.2f}",
        None if behaviour is None else f"{behaviour:.3f}",
        None if scale is None else f"{scale:.0%}",
        verdict,
    ]


@pytest.mark.benchmark
def test_corrected_answers_change_the_style_of_other_answers(smollm2: Path, tmp_path: Path) -> None:
    pairs, prompts = read()
    assert [len(pairs[style]) for style in STYLES] == [60, 60]
    assert len(prompts) == 40
    training = Training(sequence_lengths=(LENGTH,), batch_size=2)
    base: dict[str, Shown] = {}
    results: dict[tuple[str, str], Learned] = {}
    for how in HOW:
        bundle = tmp_path / f"{how}.bundle"
        Personalizer(smollm2, {"mesp": {"preferences": how}}, "executorch", training=training).build(bundle)
        for style in STYLES:
            with PersonalModel.open(bundle, tmp_path / f"{how}_{style}") as model:
                base[style] = of_base(model, style)
                results[style, how] = learned(model, style, how)
            print(style, how, results[style, how], flush=True)
            write(base, results)
    for style in STYLES:
        assert results[style, "simpo"].refused_because is None
        assert results[style, "simpo"].shown.margin > base[style].margin
    assert results["short", "simpo"].shown.characters < base["short"].characters
    assert results["formal", "simpo"].shown.with_contraction < base["formal"].with_contraction


def write(base: dict[str, Shown], results: dict[tuple[str, str], Learned]) -> None:
    """The table of what is measured so far."""
    rows: list[list[Cell]] = []
    for style, answers in base.items():
        rows.append(cells(style, "nothing", answers))
        for how, called in zip(HOW, ("better answers", "pairs"), strict=True):
            if (style, how) in results:
                result = results[style, how]
                rows.append(cells(style, called, result.shown, result))
    write_table(
        "preferences",
        HEADER,
        rows,
        f"SmolLM2-135M-Instruct, `mesp`, AdamW, {RUN['run_steps']} steps of 2 rows of {LENGTH} tokens at {RUN['learning_rate']:g} "
        f"with `general_share={RUN['general_share']}`, rank 8; 60 pairs a style. Characters and contractions: of greedy answers of "
        f"at most {MOST_TOKENS} tokens to 40 prompts that were in no pair. Margin: by how much the mean log-probability of the "
        "better answers of the pairs is above that of the others. Nats: of the gate's behaviour rows, times the base's own. One "
        "seed.",
        machine="",
    )
