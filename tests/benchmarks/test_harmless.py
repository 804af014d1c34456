# SPDX-License-Identifier: Apache-2.0
"""What a pretrained model learns of its user and what it keeps of itself: facts alone, and facts among the model's own answers.

A run takes some ten minutes on two cores and is kept (harmless_runs.py). BESPOKE_FIGURES=print tries it with one person and one
seed and writes nothing. Gemma 3 270M, a base model, takes part where BESPOKE_GEMMA3 names its GGUF file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sample_apps.desktop.tries import tries
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.harmless_measure import Measured, answer, ratio
from tests.benchmarks.harmless_runs import (
    PLAIN,
    REHEARSED,
    Model,
    Result,
    Run,
    base_measured,
    base_nats,
    bundle,
    chat_model,
    learned_state,
    result,
    run_of,
)
from tests.benchmarks.harmless_words import Asked, facts
from tests.support.personas import PERSONAS

TRYING = os.environ.get("BESPOKE_FIGURES") == "print"
SEEDS = 1 if TRYING else 3
TAUGHT, BEHAVIOUR, ACCEPTED = 0.8, 1.05, 0.9  # least share of facts, most of the base's nats, least share of runs
TRIED = 80  # most tokens of an answer in docs
HEADER = (
    "model, person",
    "learned",
    "facts in the taught words",
    "in other words",
    "nats of the base's answers, times the base's own",
    "characters of an answer",
    "accepted",
    "refused because",
)


@pytest.fixture(scope="module")
def chat(smollm2: Path) -> Model:
    return chat_model(smollm2)


@pytest.mark.benchmark
def test_a_model_learns_its_users_facts_and_stays_itself(chat: Model, data_folder: Path, tmp_path: Path) -> None:
    rows: list[list[Cell]] = []
    results: dict[str, list[Result]] = {PLAIN: [], REHEARSED: []}
    for persona in PERSONAS[:1] if TRYING else PERSONAS:
        rows.append(_base_row(chat, persona, data_folder))
        for learned, all_of_it in results.items():
            runs = [
                result(chat, run_of(chat, persona, learned, seed, data_folder), data_folder, tmp_path / "run")
                for seed in range(SEEDS)
            ]
            rows.append(_row(chat, persona, learned, runs))
            print(rows[-1], flush=True)
            all_of_it += runs
    write_table("harmless", HEADER, rows, _note([run.run for runs in results.values() for run in runs]), machine="")
    assert all(run.refused_because == "behaviour_worse" for run in results[PLAIN])
    for run in results[REHEARSED]:
        assert sum(run.measured.taught) >= TAUGHT * len(run.measured.taught), run.run
        assert ratio([run.measured.behaviour], base_nats(chat)).value <= BEHAVIOUR, run.run
    accepted = sum(run.refused_because is None for run in results[REHEARSED])
    assert accepted >= ACCEPTED * len(results[REHEARSED])


@pytest.mark.benchmark
def test_a_base_model_learns_facts_and_goes_on_writing(data_folder: Path, tmp_path: Path) -> None:
    if "BESPOKE_GEMMA3" not in os.environ:
        pytest.skip("BESPOKE_GEMMA3, the GGUF file of Gemma 3 270M, is not set")
    base = Model("Gemma 3 270M", Asked(Path(os.environ["BESPOKE_GEMMA3"]), chats=False), "openings.txt")
    (persona, *_) = PERSONAS
    rows = [_base_row(base, persona, data_folder)]
    runs = []
    for learned in (PLAIN, REHEARSED):
        run = result(base, run_of(base, persona, learned, 0, data_folder), data_folder, tmp_path / "run")
        rows.append(_row(base, persona, learned, [run]))
        print(rows[-1], flush=True)
        runs.append(run.run)
    write_table("harmless_base", HEADER, rows, _note(runs), machine="")
    assert run.refused_because is None
    assert sum(run.measured.taught) >= TAUGHT * len(run.measured.taught)


@pytest.mark.benchmark
def test_ten_things_a_user_tries_after_a_night_of_learning(chat: Model, data_folder: Path, tmp_path: Path) -> None:
    from bespoke import PersonalModel

    (persona, *_) = PERSONAS
    said: dict[str, list[str]] = {}
    states = {"before": tmp_path / "state", "after": learned_state(chat, persona, data_folder)}
    for when, state in states.items():
        with PersonalModel.open(bundle(chat), state) as model:
            said[when] = [answer(model, chat.asked.prompt(words), TRIED).text for _, words in tries()]
    rows: list[list[Cell]] = [
        [what, words, before, after]
        for (what, words), before, after in zip(tries(), said["before"], said["after"], strict=True)
    ]
    write_table(
        "ten_tries",
        ("what", "asked", "before", "after"),
        rows,
        f"{chat.name}, greedy, at most {TRIED} tokens. It learned the {len(facts(data_folder, persona))} facts of the {persona} "
        "with the defaults.",
        machine="",
    )


def _base_row(model: Model, persona: str, data_folder: Path) -> list[Cell]:
    measured = base_measured(model, persona, data_folder)
    return [
        f"{model.name}, {persona}",
        "nothing",
        _share([measured.taught]),
        _share([measured.other]),
        "1",
        _characters([measured]),
        None,
        None,
    ]


def _row(model: Model, persona: str, learned: str, runs: list[Result]) -> list[Cell]:
    measured = [run.measured for run in runs]
    reasons = sorted({run.refused_because for run in runs if run.refused_because})
    return [
        f"{model.name}, {persona}",
        learned,
        _share([one.taught for one in measured]),
        _share([one.other for one in measured]),
        str(ratio([one.behaviour for one in measured], base_nats(model))),
        _characters(measured),
        f"{sum(run.refused_because is None for run in runs)} of {len(runs)}",
        ", ".join(reasons) or None,
    ]


def _share(seeds: list[list[bool]]) -> str:
    return f"{', '.join(str(sum(seed)) for seed in seeds)} of {len(seeds[0])}"


def _characters(measured: list[Measured]) -> int:
    characters = [count for one in measured for count in one.characters]
    return round(sum(characters) / len(characters))


def _note(runs: list[Run]) -> str:
    """`runs`: all with one learning rate and one share, or none."""
    (rate,) = {run.learning_rate for run in runs}
    (share,) = {run.general_share for run in runs if run.learned == REHEARSED}
    steps = sorted({run.steps for run in runs})
    seeds = len({run.seed for run in runs})
    return (
        f"`mesp`, AdamW, {rate:g}, rank 8, {steps[0]} to {steps[-1]} steps, seeds of each: {seeds}. Every question with a short "
        f'answer is an example with `use="train"`. Plain: `general_share` 0. Rehearsed: {share:g}. A fact is known if a right '
        "answer stands in the greedy answer; a number for each seed. Other words: three wordings of each question that were not "
        "taught. Behaviour is measured on greedy answers of the base to prompts of `tests/benchmarks/harmless`, none of which the "
        "SDK rehearses. The interval is that of 95 in 100 draws of the prompts. Refused adapters are measured too."
    )
