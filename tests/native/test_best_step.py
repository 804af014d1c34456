# SPDX-License-Identifier: Apache-2.0
"""The best step of a run: what the core finds is what the reference finds step by step, and no cut or kill changes it."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import PersonalModel
from bespoke.bundle.reader import read_bundle
from bespoke.reference.evaluate import evaluate
from bespoke.reference.train import RunState, bundle_rows, train
from tests.native.core_lab import Core, tiny_core_bundle
from tests.support.checks import few_of, full, new_seed, record_check
from tests.support.oracle import run_of
from tests.support.reading import accepted, held_out_of_run, read_state, rows_of_run, select_all
from tests.unit.personal_model.tiny import numbers, split_of

__all__ = ["tiny_core_bundle"]

# Held-out rows that choose, of three: batches of two. mebp takes two micro-batches a step, so that it has time for both batches.
# What prge keeps of a step is where the run began: the adapter that is judged and kept must be made of it.
METHODS = {"mesp": 2, "mebp": 3, "mezo": 2, "prge": 2}
EXAMPLES, STEPS, JUDGED = 60, 60, [12, 24, 36, 48, 60]
CUTS, FEW = 20, 2  # runs that are cut, in the full count and in the fast tests
ENDED = (
    "SELECT step, cursor, ended_because FROM runs",
    "SELECT step, loss FROM judgements ORDER BY step",
    "SELECT step, metrics, sha256 FROM versions",
)

pytestmark = pytest.mark.xdist_group("core")


@dataclass(frozen=True)
class Begun:
    """A state with a run that has made no step, and how the run ends that nobody disturbs."""

    core: Core
    state: Path
    report: dict[str, Any]
    ended: list[Any]


@pytest.fixture(scope="module", params=few_of(METHODS, ("mesp",)))
def begun(
    request: pytest.FixtureRequest, native_build: Path, tiny_core_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Begun:
    place = tmp_path_factory.mktemp(request.param)
    core = Core(native_build / "bespoke-core", tiny_core_bundle)
    with PersonalModel.open(tiny_core_bundle, place / "begun", engine="executorch") as model:
        add_examples(model)
        assert model.train(run_steps=STEPS, seconds=1e-9, method=request.param).total_steps == 0
    shutil.copytree(place / "begun", place / "whole")
    report = core.train(place / "whole").report
    return Begun(core, place / "begun", report, select_all(place / "whole", *ENDED))


def add_examples(model: PersonalModel) -> None:
    """Those that train count up, those that are held out count down: which numbers there are helps both, their order does not."""
    held_out = 0
    for index in range(EXAMPLES):
        example = numbers(index)
        split = split_of(f"number-{index}", index + 1, held_out)
        if split == "validation":
            example["tokens"].reverse()
        held_out += split == "validation"
        assert model.examples.add(example, id=f"number-{index}").split == split


def choosing(state: Path, rows: int) -> list[Any]:
    """The first rows of the held-out examples that choose: every second one in the order of the hashes of their ids."""
    by_hash = sorted(held_out_of_run(state), key=lambda one: hashlib.sha256(one[0].encode()).hexdigest())
    return [row for _, of in by_hash[1::2] for row in of][:rows]


def test_it_is_the_one_that_the_reference_finds(begun: Begun, tmp_path: Path) -> None:
    state = begun.state
    run, settings = run_of(state)
    losses, adapters = {}, {}
    with read_bundle(begun.core.bundle) as bundle:
        at = RunState(bundle.initial_adapter())
        for step in JUDGED:
            trained = train(
                bundle,
                run["method"],
                at,
                user_rows=rows_of_run(state),
                general_rows=bundle_rows(bundle, "train"),
                seed=run["seed"],
                settings=settings,
                steps=step - at.cursor.step,
            )
            at = trained.state
            found = evaluate(bundle, choosing(state, METHODS[run["method"]]), trained.adapter, method=run["method"])
            assert found is not None
            losses[step], adapters[step] = found.loss, trained.adapter
    judged = {one["step"]: one["loss"] for one in begun.report["judgements"]}
    assert list(judged) == JUDGED[: len(judged)]
    assert judged == pytest.approx({step: losses[step] for step in judged}, rel=1e-3)
    best = min(judged, key=lambda step: losses[step])
    assert begun.report["best_step"] == best
    print(f"\n{run['method']}: {judged}, best {best}, stopped at {begun.report['total_steps']}")
    if begun.report["accepted"]:
        whole = state.with_name("whole")
        for name, tensor in accepted(whole).items():
            np.testing.assert_allclose(
                tensor, adapters[best][name], atol=2e-3 * float(np.abs(adapters[best][name]).max()) + 1e-6
            )


@pytest.mark.slow
def test_cuts_and_kills_change_neither_it_nor_what_it_was_worth(begun: Begun, tmp_path: Path) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    for number in range(CUTS if full() else FEW):
        state = tmp_path / str(number)
        shutil.copytree(begun.state, state)
        calls = 0
        while not select_all(state, "SELECT 1 FROM runs WHERE ended_because IS NOT NULL")[0]:
            calls += 1
            kind = (
                "undisturbed"
                if calls > 12
                else chance.choice(["ended early", "killed at any time", "killed after a step"])
            )
            if kind == "undisturbed":
                begun.core.train(state)
            elif kind == "ended early":
                begun.core.train(state, most_steps=chance.randint(1, 25))
            elif kind == "killed at any time":
                begun.core.train(state, kill_after=chance.uniform(0, 0.5))
            else:
                begun.core.train(state, kill_after=chance.uniform(0, 0.003), after_step=chance.randint(1, 25))
            done[kind] += 1
            assert read_state(state, begun.core.bundle)["broken"] == [], (seed, number, calls)
        assert select_all(state, *ENDED) == begun.ended, (seed, number)
        shutil.rmtree(state)
    method = begun.report["method"]
    record_check(
        f"runs of {method} cut and killed at random, best step and accepted adapter as without", dict(done), seed
    )
