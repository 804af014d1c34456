# SPDX-License-Identifier: Apache-2.0
"""How often the gate refuses a run that it should accept, and accepts one that it should refuse, by what a bundle gives it.

Verdicts are kept in .cache/behaviour_gate as they come, so a run that was stopped goes on there; delete the folder to judge again.
BESPOKE_FIGURES=print tries it with two seeds and writes nothing.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.benchmarks.behaviour_gate import BAD, BATCH, CASES, FORGETS, LENGTH, LONG, RATE, SENSE, STEPS, build, verdict
from tests.benchmarks.figures import Cell, write_table
from tests.conftest import REPOSITORY
from tests.support.nonsense import MESSAGES

SEEDS = 2 if os.environ.get("BESPOKE_FIGURES") == "print" else 20
JUDGED = ("rehearsed", "data=FILE", "no turns")  # the bundles whose gate sees behaviour and whose model rehearses
RIGHT = 0.9
KEPT = REPOSITORY / ".cache" / "behaviour_gate"


@pytest.mark.benchmark
def test_each_kind_of_bundle_has_a_gate_that_errs_this_often(stories: Path, data_folder: Path, tmp_path: Path) -> None:
    from sample_apps.desktop.pretrain import ensure_model

    chat = ensure_model()
    rows: list[list[Cell]] = []
    rates: dict[str, tuple[float, float]] = {}
    for case in CASES:
        bundle = build(case, chat, stories, data_folder, KEPT / f"{CASES.index(case)}.bundle")
        found = []
        for seed in range(SEEDS):
            for words in (SENSE, BAD[seed % len(BAD)]):
                kept = KEPT / f"{CASES.index(case)}-{words}-{seed}.json"
                if not kept.exists():
                    one = verdict(case, bundle, words, seed, data_folder, tmp_path / "state")
                    kept.write_text(json.dumps(asdict(one)), encoding="ascii")
                found.append(json.loads(kept.read_text(encoding="ascii")))
        good, bad = ([one for one in found if (one["words"] == SENSE) == sense] for sense in (True, False))
        refused, accepted = sum(not one["accepted"] for one in good), sum(one["accepted"] for one in bad)
        rates[case.name] = refused / len(good), accepted / len(bad)
        reasons = Counter(one["refused_because"] for one in found if not one["accepted"])
        rows.append(
            [
                case.name,
                f"{refused} of {len(good)}",
                f"{accepted} of {len(bad)}",
                rise(good, max),
                rise(bad, min),
                ", ".join(f"{reason}: {count}" for reason, count in reasons.most_common()) or None,
            ]
        )
        print(rows[-1], flush=True)
    write_table(
        "behaviour_gate",
        (
            "bundle",
            "good runs refused",
            "bad runs accepted",
            "largest rise of the behaviour loss, good",
            "smallest rise, bad",
            "reasons",
        ),
        rows,
        f"The chat model of the small demo (no turns: stories260K), `mesp`, AdamW, rank 8, {BATCH} rows of {LENGTH} tokens a step, "
        f"on {MESSAGES} messages of a persona; {SEEDS} seeds. Good: {STEPS} steps at {RATE:g}. Bad, in turn: {LONG} times the "
        f"steps at {LONG} times the rate with `general_share` 0 ({FORGETS}), and the same messages with their letters shuffled, "
        "reversed, or drawn at random.",
        machine="",
    )
    for name in JUDGED:
        assert max(rates[name]) <= 1 - RIGHT, (name, rates[name])


def rise(verdicts: list[dict[str, object]], which: object) -> str | None:
    shares = []
    for one in verdicts:
        before, after = one["behaviour"]  # type: ignore[misc]
        if before is not None and after is not None:
            shares.append(after / before - 1)
    return f"{which(shares):+.1%}" if shares else None  # type: ignore[operator]
