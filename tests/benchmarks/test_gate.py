# SPDX-License-Identifier: Apache-2.0
"""What the gate of a bundle with its own general set refuses and accepts: nonsense and people's words, of five models, fifty seeds.

Verdicts are kept in .cache/gate as they come, so a run that was stopped goes on there; delete the folder to judge again.
BESPOKE_FIGURES=print tries it with two seeds and writes nothing; BESPOKE_SEEDS=N judges so many, and the table says so.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.trained import FAMILIES, trained_model
from tests.conftest import REPOSITORY
from tests.support.nonsense import BATCH, MESSAGES, NONSENSE, STARTS, STEPS, build, verdicts
from tests.support.personas import LENGTH

SEEDS = 2 if os.environ.get("BESPOKE_FIGURES") == "print" else int(os.environ.get("BESPOKE_SEEDS", "50"))
MODELS = ("stories260K", *FAMILIES)
REFUSED, ACCEPTED = 0.95, 0.90
KEPT = REPOSITORY / ".cache" / "gate"

Verdicts = dict[tuple[str, str, str], list[bool]]


@pytest.mark.benchmark
def test_nonsense_is_refused_and_sense_accepted(stories: Path, data_folder: Path, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        for name in MODELS:
            judge(name, seed, stories, data_folder, tmp_path)
    found: Verdicts = {}
    rises: dict[bool, list[float]] = {
        True: [],
        False: [],
    }  # relative rises of the general loss, by whether the words made sense
    for name in MODELS:
        for seed in range(SEEDS):
            for line in kept(name, seed).read_text(encoding="ascii").splitlines():
                one = json.loads(line)
                found.setdefault((name, one["start"], one["words"]), []).append(one["accepted"])
                rises[one["words"] == "sense"].append(one["general"][1] / one["general"][0] - 1)
    rows: list[list[Cell]] = []
    for name in MODELS:
        for start in STARTS:
            refused = [share(found.get((name, start, kind), []), False) for kind in NONSENSE]
            rows.append([name, start, *refused, share(found.get((name, start, "sense"), []), True)])
    write_table(
        "gate",
        ("model", "judged against", *(f"{kind}: refused" for kind in NONSENSE), "people's words: accepted"),
        rows,
        f"{SEEDS} seeds; {STEPS} steps of {BATCH} rows of {LENGTH} tokens, `mesp`, AdamW, 3e-3, rank 8, on {MESSAGES} messages "
        "of one of the three personas or passages of Shakespeare, one in ten held out; nonsense is the same messages with their "
        "letters shuffled, reversed, or drawn at random. From an accepted adapter: words are further messages of the same writer. "
        f"The general set is the build's own, `general_tolerance` 0.05; its loss rose by at most {max(rises[True]):.1%} with "
        f"people's words and by at least {min(rises[False]):.1%} with nonsense.",
        machine="",
    )
    for (name, start, words), accepted in found.items():
        right = sum(accepted) / len(accepted)
        assert right >= ACCEPTED if words == "sense" else 1 - right >= REFUSED, (name, start, words, right)


def judge(name: str, seed: int, stories: Path, data_folder: Path, tmp_path: Path) -> None:
    """Leaves the verdicts of one model and seed, if they are not there yet."""
    if kept(name, seed).exists():
        return
    model = stories if name == "stories260K" else KEPT / "models" / name
    if not model.exists():
        trained_model(name, model, data_folder)
    bundle = KEPT / name / "bundle"
    if not bundle.exists():
        build(model, bundle)
    lines = [json.dumps(asdict(one)) for one in verdicts(bundle, data_folder, tmp_path / name, seed)]
    print(name, seed, *lines, sep="\n", flush=True)
    kept(name, seed).write_text("\n".join(lines) + "\n", encoding="ascii")


def kept(name: str, seed: int) -> Path:
    return KEPT / name / f"{seed}.jsonl"


def share(verdicts: list[bool], wanted: bool) -> str:
    return f"{sum(one == wanted for one in verdicts)} of {len(verdicts)}"
