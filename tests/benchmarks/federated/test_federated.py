# SPDX-License-Identifier: Apache-2.0
"""What devices come to by learning together, with which help of a cloud, and what their numbers tell.

The core measures, Python aggregates. A run takes some minutes and is kept (runs.py), so a benchmark that was stopped goes on.
BESPOKE_FIGURES=print tries it with one seed and writes nothing. BESPOKE_FIGURES=kept writes what was measured so far.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from sample_apps.desktop.pretrain import DEFAULT_CACHE, ensure_model
from tests.benchmarks.federated.intents import Public
from tests.benchmarks.federated.parties import COLUMNS, PROJECTIONS, Place
from tests.benchmarks.federated.rounds import COLLUDING, HUGE, MIX, PROBED, WATCHERS, Attack, Run
from tests.benchmarks.federated.runs import PROTOCOL, Result, kept_result, result, result_through_protocol
from tests.benchmarks.federated.spans import spans
from tests.benchmarks.federated.telling import SIGMAS, told
from tests.benchmarks.figures import Cell, write_table
from tests.native.conftest import compile_core

KEPT_ALONE = os.environ.get("BESPOKE_FIGURES") == "kept"
SEEDS = 1 if os.environ.get("BESPOKE_FIGURES") == "print" else 3
HEADER = ("method", "public data", "rate", "accuracy", "of each seed", "loss")

PLAIN = Run("plain", 0.003)
PROBE = Run("probe", 1.0)
PROJECTIONS_RUN = Run("projections", 0.1, rounds=200)
OWN = (
    PLAIN,
    Run("literal", 0.003, gamma=10),
    Run("literal", 1.0),
    Run("guided", 2e-4),
    PROBE,
    PROJECTIONS_RUN,
    Run("cloud", 1.0),
    Run("fedsgd", 1.0),
    Run("fedsgd", 3.0, last_block=True),
    *(replace(PROBE, public=public) for public in ("three", "other", "wrong")),
    Run("cloud", 1.0, public="three"),
)
THROUGH = (PLAIN, Run("guided", 2e-4), PROBE, replace(PROJECTIONS_RUN, rounds=100))
REAL = Run("projections", 0.5, rounds=100, model="SmolLM2-135M-Instruct")
STARTED = tuple(replace(run, public="three", start=True) for run in (PLAIN, PROBE, PROJECTIONS_RUN))
DIRECTIONS = 4  # of a round in mode shared, twelve devices each
SHARED = (
    replace(PLAIN, clients=48, directions=DIRECTIONS),
    replace(PROBE, clients=48, directions=DIRECTIONS, combine="median"),
    replace(PROJECTIONS_RUN, clients=48),
)
CLIP, SMALL_CLIP = 100.0, 30.0  # of a number along a column
CLIPPED = replace(PROBE, clients=48, clip=CLIP)
MEDIAN, TRIMMED = replace(CLIPPED, combine="median"), replace(CLIPPED, combine="trimmed_mean")
ATTACKS: tuple[Attack, ...] = ("huge", "colluding", "flipped")
HOSTILE = (
    CLIPPED,
    MEDIAN,
    TRIMMED,
    *(replace(PROBE, clients=48, attack=attack) for attack in ATTACKS),
    *(replace(combined, attack=attack) for combined in (MEDIAN, TRIMMED) for attack in ATTACKS),
)
SMALL = replace(CLIPPED, clip=SMALL_CLIP)
SLOW = replace(SMALL, rounds=900, rate=1 / 3)  # steps of the same length in all
LONG = replace(SLOW, rounds=1500, noise=1.0)
NOISY = (*(replace(run, noise=noise) for run in (CLIPPED, SMALL, SLOW) for noise in (0.0, 1.0)), LONG)
AT_CHANCE, COSTS, FLIPPED_COSTS = 0.2, 0.05, 0.1  # of accuracy; chance is a seventh
GUARD = 0.7  # of the share that public gradients have
SOON = 20  # rounds of the guard's trial
WRONG = replace(PROBE, public="wrong", guard=GUARD, rate_after=PLAIN.rate)
TRIALS = tuple(replace(PROBE, public=public, rounds=SOON, guard=GUARD) for public in get_args(Public))
NEEDED, NEEDED_STARTED = 0.2, 0.1  # of accuracy above plain
NEAR = 1.05  # most loss at the end beside rounds without guidance
TELLS_LITTLE, OWN_GRADIENT = 0.6, 0.65  # most AUC
PACKED = 0.8  # of what the span holds, least that its INT4 codes hold


@pytest.fixture
def place(tmp_path: Path) -> Place:
    lab = compile_core("core") / "tests" / "federation_lab"
    return Place([str(lab)], ensure_model(DEFAULT_CACHE), tmp_path)


def results(runs: tuple[Run, ...], place: Place, data_folder: Path) -> dict[Run, list[Result]]:
    """All rows with the first seed, then with the others. Rows of which nothing was measured are left out where nothing may be."""
    found: dict[Run, list[Result]] = {run: [] for run in runs}
    for seed in range(SEEDS):
        for run, of_seeds in found.items():
            one = replace(run, seed=seed)
            made = kept_result(one) if KEPT_ALONE else result(one, place, data_folder)
            of_seeds += [made] if made else []
    found = {run: of_seeds for run, of_seeds in found.items() if of_seeds}
    if not found:
        pytest.skip("nothing was measured so far")
    return found


@pytest.mark.benchmark
def test_guidance_and_projections_learn_more_than_plain_rounds(place: Place, data_folder: Path) -> None:
    found = results(OWN, place, data_folder)
    write_table("federation_own", HEADER, rows_of(found), own_note(), machine="")
    plain = accuracy(found[PLAIN])
    for run in (Run("guided", 2e-4), PROBE, PROJECTIONS_RUN):
        assert accuracy(found[run]) >= plain + NEEDED, run


@pytest.mark.benchmark
def test_the_protocol_carries_what_the_simulation_computes(place: Place, data_folder: Path) -> None:
    made = {
        run: kept_result(run, PROTOCOL) if KEPT_ALONE else result_through_protocol(run, place, data_folder)
        for run in THROUGH
    }
    found = {run: [one] for run, one in made.items() if one}
    if not found:
        pytest.skip("nothing was measured so far")
    rows = [
        [*row, run.rounds, f"{runs[0].seconds / run.rounds:.2f}"]
        for row, (run, runs) in zip(rows_of(found), found.items(), strict=True)
    ]
    note = (
        "As above, with a server in a process of its own, HTTPS and signed requests. `bespoke federate guide` makes guidance. Of "
        "projections each of the 16 devices sends 256. Seconds are those of all parties, one after the other. Another benchmark "
        "ran on the second core."
    )
    write_table("federation_protocol", (*HEADER, "rounds", "seconds a round"), rows, note)
    if PLAIN in found:
        for run in THROUGH[1:]:
            assert run not in found or accuracy(found[run]) >= accuracy(found[PLAIN]) + NEEDED, run


@pytest.mark.benchmark
def test_devices_teach_a_pretrained_model(place: Place, smollm2: Path, data_folder: Path) -> None:
    made = kept_result(REAL) if KEPT_ALONE else result(REAL, replace(place, model=smollm2), data_folder)
    if made is None:
        pytest.skip("nothing was measured so far")
    rows: list[list[Cell]] = [[int(number), f"{at:.3f}", f"{loss:.2f}"] for number, loss, at in made.curve]
    note = f"{REAL.model} in INT4, {PROJECTIONS} projections of exact gradients, 16 devices a round, rate {REAL.rate:g}, one seed."
    write_table("federation_pretrained", ("after rounds", "accuracy", "loss"), rows, note, machine="")
    assert made.accuracy >= AT_CHANCE + NEEDED


@pytest.mark.benchmark
def test_devices_add_what_a_trained_adapter_lacks(place: Place, data_folder: Path) -> None:
    found = results(STARTED, place, data_folder)
    start = np.mean([run.curve[0][2] for run in found[STARTED[0]]])
    note = (
        f"Rounds begin with an adapter that the cloud trained on three of the seven kinds: accuracy {start:.3f}. Guidance is of "
        "these three as well."
    )
    write_table("federation_started", HEADER, rows_of(found), note, machine="")
    assert accuracy(found[STARTED[-1]]) >= accuracy(found[STARTED[0]]) + NEEDED_STARTED


@pytest.mark.benchmark
def test_devices_can_share_directions(place: Place, data_folder: Path) -> None:
    found = results(SHARED, place, data_folder)
    note = (
        f"48 devices a round. Projections: all devices share {PROJECTIONS} directions, and the server sees sums alone. Plain and "
        f"probe: {DIRECTIONS} directions, twelve devices each; of a probe the server takes the median."
    )
    write_table("federation_shared", HEADER, rows_of(found), note, machine="")


@pytest.mark.benchmark
def test_a_median_of_clipped_numbers_stands_hostile_devices(place: Place, data_folder: Path) -> None:
    found = results(HOSTILE, place, data_folder)
    header = ("one of ten devices sends", "numbers", "of each column", "accuracy", "of each seed", "loss")
    rows: list[list[Cell]] = [
        [
            run.attack or "what it measured",
            "as they come" if run.clip is None else f"of at most {run.clip / PROBED:.2g}",
            run.combine.replace("_", " "),
            *seed_cells(runs),
        ]
        for run, runs in found.items()
    ]
    note = (
        f"Probe, 48 devices a round, {COLUMNS} columns and twelve devices for each, from an untrained adapter. Huge: "
        f"{HUGE / PROBED:.0e}, which a server that knows the clip refuses. Colluding: all send the least number that is let in (as "
        f"they come: {COLLUDING / PROBED:.0f}), against the public gradients."
    )
    write_table("federation_hostile", header, rows, note, machine="")
    honest = accuracy(found[CLIPPED])
    for run, runs in found.items():
        if run.attack in ("huge", "colluding") and run.clip is None:
            assert accuracy(runs) <= AT_CHANCE, run
        elif run.clip is not None:
            assert accuracy(runs) >= honest - (FLIPPED_COSTS if run.attack == "flipped" else COSTS), run


@pytest.mark.benchmark
def test_noise_takes_more_rounds(place: Place, data_folder: Path) -> None:
    """In many smaller steps it costs no more than COSTS, next to a run without noise."""
    found = results(NOISY, place, data_folder)
    header = ("numbers", "rate", "rounds", "noise", "accuracy", "of each seed", "loss")
    rows: list[list[Cell]] = [
        [
            f"of at most {(run.clip or 0) / PROBED:.2g}",
            f"{run.rate:.2g}",
            run.rounds,
            f"{run.noise:g}" if run.noise else None,
            *seed_cells(runs),
        ]
        for run, runs in found.items()
    ]
    note = (
        "Devices as above, all honest. Noise: its deviation in the mean of a column's numbers, in units of the clip. A third of "
        "the rate in 900 rounds: steps of the same length in all as in 300."
    )
    write_table("federation_noise", header, rows, note, machine="")
    if LONG in found:
        assert accuracy(found[LONG]) >= accuracy(found[CLIPPED]) - COSTS


@pytest.mark.benchmark
def test_wrong_guidance_is_noticed_and_stopped(place: Place, data_folder: Path) -> None:
    found = results((PLAIN, WRONG, replace(PROBE, public="wrong"), *TRIALS), place, data_folder)
    header = (*HEADER, "stopped", "devices' part in the span", "that of public gradients")
    rows = [[*row, *guard_cells(runs)] for row, runs in zip(rows_of(found), found.values(), strict=True)]
    note = (
        f"Until round {SOON} {WATCHERS} of the 16 devices measure z. Then guidance stops if devices have less than {GUARD:g} of "
        f"the public gradients' part, over ten rounds, and rounds are plain. Trial: {SOON} rounds alone."
    )
    write_table("federation_guard", header, rows, note, machine="")
    assert WRONG not in found or loss(found[WRONG]) <= NEAR * loss(found[PLAIN])
    assert TRIALS[0] not in found or not any(run.stopped for run in found[TRIALS[0]])
    assert KEPT_ALONE or all(run.stopped for run in found[WRONG])


@pytest.mark.benchmark
def test_packed_guidance_holds_most_of_what_its_span_holds(place: Place, data_folder: Path) -> None:
    found = spans(place, data_folder)
    rows: list[list[Cell]] = [
        [one.public, one.rounds, f"{one.exact:.3f}", f"{one.packed:.3f}", f"{one.cosine:.3f}"] for one in found
    ]
    header = ("public data", "after rounds", "in the span", "in that of INT4 codes", "cosine with the public gradient")
    note = (
        f"The gradient of 512 of the devices' sentences and the span of {COLUMNS} gradients of 16 public sentences each: what lies "
        "in the span, by the square of its length. Rounds are those of `fedsgd`."
    )
    write_table("federation_spans", header, rows, note, machine="")
    for one in found:
        assert one.packed >= PACKED * one.exact, one


@pytest.mark.benchmark
def test_numbers_tell_little_of_a_sentence(place: Place, data_folder: Path) -> None:
    tellings = told(place, data_folder)
    rows: list[list[Cell]] = [
        [
            "before training" if one.rounds == 0 else f"after {one.rounds} rounds",
            one.what,
            *(f"{x:.3f}" for x in one.by_sigma),
        ]
        for one in tellings
    ]
    header = ("adapter", "what the server sees", "no noise", *(f"sigma {sigma:g}" for sigma in SIGMAS[1:]))
    note = (
        "AUC of the question whether a sentence was in a batch of four: 300 batches with it, 300 with another of its kind. "
        "Noise: clipped to the median norm, then sigma times that on each number. Picked: the share of batches of which the server "
        "picks the right sentence of 100; by luck 0.01. Rounds are those of `fedsgd`."
    )
    write_table("federation_tells", header, rows, note, machine="")
    for one in tellings:
        if one.what in ("seed", "honest guidance"):
            assert one.by_sigma[0] <= TELLS_LITTLE, one
        if one.what in ("own gradient", "projections"):
            assert one.by_sigma[1] <= OWN_GRADIENT, one


def accuracy(runs: list[Result]) -> float:
    return float(np.mean([run.accuracy for run in runs]))


def loss(runs: list[Result]) -> float:
    return float(np.mean([run.loss for run in runs]))


def rows_of(found: dict[Run, list[Result]]) -> list[list[Cell]]:
    return [
        [
            name_of(run),
            run.public if run.start or run.method in ("literal", "guided", "probe", "cloud") else None,
            f"{run.rate:g}",
            *seed_cells(runs),
        ]
        for run, runs in found.items()
    ]


def seed_cells(runs: list[Result]) -> list[Cell]:
    """Accuracy, that of each seed, and loss."""
    return [f"{accuracy(runs):.3f}", ", ".join(f"{one.accuracy:.3f}" for one in runs), f"{loss(runs):.2f}"]


def name_of(run: Run) -> str:
    extra = f", every {run.gamma} rounds" if run.gamma > 1 else ", last block alone" if run.last_block else ""
    if run.guard is not None:
        extra = ", trial" if run.rounds == SOON else ", guarded"
    return f"{run.method}{extra}"


def guard_cells(runs: list[Result]) -> list[Cell]:
    seen = [run.seen[-1] for run in runs if run.seen]
    stopped = ", ".join("yes" if run.stopped else "no" for run in runs if run.seen) or None
    return [stopped, *(", ".join(f"{both[which]:.2f}" for both in seen) or None for which in (0, 1))]


def own_note() -> str:
    return (
        f"The small Llama of the desktop sample, seven intents of SNIPS told by one word, LoRA-FA of rank 8 on all blocks. 80 "
        "devices with 40 sentences each, kinds by Dirichlet 0.1. A round: 16 devices, 4 sentences each, two forward passes; a "
        f"direction for each. 300 rounds, and 200 of projections ({PROJECTIONS} of an exact gradient), which is as much work. "
        f"Guidance: {COLUMNS} columns a round from 16 public sentences each, alpha {MIX:g}. Rates are those of a prototype, scaled "
        "to this adapter; of plain rounds two were tried. "
        "Accuracy: of the seven words, on 435 test sentences."
    )
