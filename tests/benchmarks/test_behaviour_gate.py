# SPDX-License-Identifier: Apache-2.0
"""How often the gate refuses a run that it should accept, and accepts one that it should refuse, by what a bundle gives it.

Verdicts are kept in .cache/behaviour_gate as they come, so a run that was stopped goes on there. Their names have a digest of the
settings that decide them. Delete the folder after a change of the gate, the core or the SDK's prompts. BESPOKE_FIGURES=print tries
it with two seeds and writes nothing.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.behaviour_gate import (
    BATCH,
    CASES,
    FORGETS,
    LENGTH,
    LONG,
    RANK,
    RATE,
    SENSE,
    SHARE,
    STEPS,
    build,
    settings_digest,
    verdict,
)
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.trained import trained_chat_model
from tests.conftest import REPOSITORY
from tests.support.nonsense import MESSAGES, NONSENSE

SEEDS = 2 if os.environ.get("BESPOKE_FIGURES") == "print" else 20
JUDGED = ("rehearsed", "data=FILE", "no turns")  # the bundles whose gate sees behaviour and whose model rehearses
RIGHT = 0.9
KEPT = REPOSITORY / ".cache" / "behaviour_gate"


HEADER = (
    "bundle",
    "good runs refused",
    "harmful runs accepted",
    "nonsense among rehearsed answers accepted",
    "largest rise of the behaviour loss, good",
    "smallest rise, harmful",
    "largest rise, nonsense",
    "reasons",
)


@pytest.mark.benchmark
def test_each_kind_of_bundle_has_a_gate_that_errs_this_often(stories: Path, data_folder: Path, tmp_path: Path) -> None:
    chat = KEPT / "model"
    if not (chat / "tokenizer_config.json").is_file():
        trained_chat_model(chat, data_folder)
    rows: list[list[Cell]] = []
    rates: dict[str, tuple[float, float]] = {}
    for number, case in enumerate(CASES):
        named = f"{number}-{settings_digest(case)}"
        bundle = build(case, chat, stories, data_folder, KEPT / f"{named}.bundle")
        good: list[dict[str, Any]] = []
        harmful: list[dict[str, Any]] = []
        nonsense: list[dict[str, Any]] = []
        for seed in range(SEEDS):
            kind = NONSENSE[seed % len(NONSENSE)]
            for runs, words, rehearses in (
                (good, SENSE, True),
                (harmful, (FORGETS, kind)[seed % 2], False),
                (nonsense, kind, True),
            ):
                if runs is nonsense and not case.rehearses:
                    continue
                kept = KEPT / f"{named}-{words}-{'rehearses' if rehearses else 'alone'}-{seed}.json"
                if not kept.exists():
                    one = verdict(case, bundle, words, seed, data_folder, tmp_path / "state", rehearses=rehearses)
                    kept.write_text(json.dumps(asdict(one)), encoding="ascii")
                runs.append(json.loads(kept.read_text(encoding="ascii")))
        reasons = Counter(one["refused_because"] for one in (*good, *harmful, *nonsense) if not one["accepted"])
        rates[case.name] = 1 - share(good), share(harmful)
        rows.append(
            [
                case.name,
                f"{sum(not one['accepted'] for one in good)} of {len(good)}",
                f"{sum(one['accepted'] for one in harmful)} of {len(harmful)}",
                f"{sum(one['accepted'] for one in nonsense)} of {len(nonsense)}" if nonsense else None,
                rise(good, max),
                rise(harmful, min),
                rise(nonsense, max),
                ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()) or None,
            ]
        )
        print(rows[-1], flush=True)
    write_table(
        "behaviour_gate",
        HEADER,
        rows,
        f"A chat model of `tests/benchmarks/trained.py` (no turns: stories260K), `mesp`, AdamW, rank {RANK}, {BATCH} rows of "
        f"{LENGTH} tokens a step, on {MESSAGES} messages of a persona; {SEEDS} seeds. Good: {STEPS} steps at {RATE:g}, "
        f"`general_share` {SHARE:g}. Harmful runs have `general_share` 0. In turn they take {LONG} times the steps at {LONG} times "
        "the rate on people's words, or the steps of a good run on the same messages with their letters shuffled, reversed, or "
        "drawn at random. Nonsense among rehearsed answers: the same nonsense in a good run, where runs rehearse.",
        machine="",
    )
    for name in JUDGED:
        assert max(rates[name]) <= 1 - RIGHT, (name, rates[name])


def share(runs: list[dict[str, Any]]) -> float:
    """The share that was accepted."""
    return sum(one["accepted"] for one in runs) / len(runs)


def rise(runs: list[dict[str, Any]], which: Callable[[list[float]], float]) -> str | None:
    """By which share the behaviour loss rose. None where the gate does not see behaviour."""
    losses = [one["behaviour"] for one in runs if None not in one["behaviour"]]
    return f"{which([after / before - 1 for before, after in losses]):+.1%}" if losses else None
