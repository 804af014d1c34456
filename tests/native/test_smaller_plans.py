# SPDX-License-Identifier: Apache-2.0
"""A bundle with plans for several budgets: the limit decides by which of them a call computes, and a run goes on by all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from bespoke import Budget, Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.core import finding
from bespoke.errors import BudgetExceeded
from bespoke.golden.prover import verify_bundle
from tests.support.bundles import made_once, shakespeare
from tests.support.reading import newest_run, slot

STEPS = 24
METHODS = {"mesp": {"learning_rate": 1e-3}, "mezo": {"learning_rate": 1e-4, "epsilon": 1e-3}}
Open = Callable[..., PersonalModel]

pytestmark = [pytest.mark.xdist_group("smaller_plans"), pytest.mark.slow]  # the bundle takes most of a minute


@pytest.fixture(autouse=True)
def built_core(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K, for all that it could use, for half way between, and for the least that it can do with."""

    def personalizer(**more: Any) -> Personalizer:
        training = Training(sequence_lengths=(32, 64), batch_size=2, steps=STEPS, seed=1)
        return Personalizer(
            stories, METHODS, "executorch", context=96, lora=Lora(rank=4), training=training, data=None, **more
        )

    def make(folder: Path) -> None:
        plans = personalizer().estimate().plans
        least, most = max(plan.least.peak_bytes for plan in plans), max(plan.fastest.peak_bytes for plan in plans)
        budgets = tuple(size / 1e6 for size in (least, (least + most) // 2, most))
        personalizer(budget=Budget(memory_mb=budgets)).build(folder / "bundle")

    return made_once(tmp_path_factory, "smaller_plans", make) / "bundle"


@pytest.fixture
def budgets(bundle: Path) -> list[int]:
    """In bytes, the largest first."""
    with read_bundle(bundle) as opened:
        whole = opened.manifest.budget.memory_bytes
        assert whole is not None
        return [whole, *(one.memory_bytes for one in opened.manifest.methods[0].smaller_plans)]


@pytest.fixture
def opened(bundle: Path, tmp_path: Path, data_folder: Path) -> Iterator[Open]:
    """`opened("alice")`: a state with 12 examples; the same name opens the same state again."""
    with ExitStack() as stack:

        def open_state(name: str = "alice", **options: Any) -> PersonalModel:
            model = stack.enter_context(PersonalModel.open(bundle, tmp_path / name, **options))
            for number, example in enumerate(shakespeare(data_folder, 12)):
                model.examples.add(example, id=str(number), use="train")
            return model

        yield open_state


def begun(model: PersonalModel, method: str) -> PersonalModel:
    assert model.train(method=method, stop=lambda: True).stopped_because == "stop_requested"
    return model


def test_it_says_what_training_takes_by_each_of_its_plans(opened: Open, budgets: list[int]) -> None:
    planned = opened().planned_training()
    assert [(one.method, one.memory_bytes) for one in planned] == [(name, size) for name in METHODS for size in budgets]
    assert all(0 < one.peak_bytes <= one.memory_bytes for one in planned)
    assert [one.replayable for one in planned] == [False] * 3 + [True] * 3
    peaks = [one.peak_bytes for one in planned if one.method == "mesp"]
    assert peaks[0] > peaks[1] > peaks[2]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_goes_on_by_the_plans_that_the_limit_leaves(
    opened: Open, bundle: Path, budgets: list[int], tmp_path: Path, method: str
) -> None:
    """The runs differ by rounding alone: the plans add in another order, and begin from the same numbers."""
    pause = STEPS - 2  # before the end, so that adapter and optimizer state can be looked at
    whole = begun(opened("whole", memory_mb=2 * budgets[0] / 1e6), method)
    of_whole = whole.train(most_steps=pause - done(whole))
    assert of_whole.memory.planned_for_bytes == budgets[0]
    sliced = begun(opened("sliced"), method)
    planned = [one for one in sliced.planned_training() if one.method == method]
    losses: list[float] = []
    used = set()
    for limit in itertools.cycle([budgets[2], budgets[0], budgets[1], budgets[1] - 1]):
        sliced.set_limit(limit / 1e6)
        report = sliced.train(most_steps=min(3, pause - done(sliced)))
        assert (report.run, report.memory.limit_bytes) == (1, limit)
        assert report.peak_bytes <= limit
        planned_for = report.memory.planned_for_bytes
        assert planned_for == next(one.memory_bytes for one in planned if one.peak_bytes <= limit)
        used.add(planned_for)
        losses += report.losses
        if report.total_steps == pause:
            break
    assert method == "mezo" or used == set(budgets)  # mezo takes so little that all of its plans fit the least of these
    count = min(len(losses), len(of_whole.losses))
    assert count > pause - 5
    assert losses[-count:] == pytest.approx(of_whole.losses[-count:], rel=1e-5)
    if method == "mesp":  # the other method keeps it in a journal
        one, two = (slot(tmp_path / name) for name in ("whole", "sliced"))
        assert one.keys() == two.keys()
        begun_with = safetensors.numpy.load_file(bundle / "adapter" / "initial.safetensors")
        change = [
            np.concatenate([(at[name] - begun_with[name]).ravel() for name in sorted(begun_with)]) for at in (one, two)
        ]
        assert np.linalg.norm(change[0] - change[1]) <= 1e-5 * np.linalg.norm(change[0])
    ends = [model.train() for model in (whole, sliced)]
    assert ends[0].stopped_because == ends[1].stopped_because == "finished"
    assert ends[1].validation_loss == pytest.approx(ends[0].validation_loss, rel=1e-5)


def done(model: PersonalModel) -> int:
    run = model.current_run()
    assert run is not None
    return run.step


def test_a_limit_below_every_plan_is_refused_by_the_smallest(opened: Open, budgets: list[int]) -> None:
    model = opened()
    least = min(one.peak_bytes for one in model.planned_training() if one.method == "mesp")
    model.set_limit((least - 10_000) / 1e6)
    with pytest.raises(BudgetExceeded, match=f"estimated peak {least / 1e6:.1f} MB"):
        model.train(run_steps=1)
    model.set_limit(budgets[2] / 1e6)
    assert model.train(run_steps=1).steps == 1


def test_answers_and_evaluations_are_the_same_within_any_limit(opened: Open, budgets: list[int]) -> None:
    said, losses = [], []
    for number, limit in enumerate(budgets):
        model = opened(str(number), memory_mb=limit / 1e6)
        said.append("".join(model.generate("Once upon a time there was a small dog", max_tokens=24)))
        losses.append(model.evaluate(split="train").loss)
    assert len(said[0]) > 20
    assert said == [said[0]] * 3
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_a_conversation_goes_on_when_the_limit_is_lowered(opened: Open, budgets: list[int]) -> None:
    model = opened(memory_mb=budgets[0] / 1e6, engine="torch")
    with model.conversation(max_tokens=24) as conversation:
        whole = "".join(piece.text for piece in conversation.feed("Once upon a time there was a small dog"))
    with model.conversation(max_tokens=24) as conversation:
        said = []
        for piece in conversation.feed("Once upon a time there was a small dog"):
            said.append(piece.text)
            model.set_limit((budgets[2] if len(said) % 2 else budgets[0]) / 1e6)
    assert "".join(said) == whole


def test_torch_takes_the_plans_that_the_limit_leaves_too(opened: Open, budgets: list[int]) -> None:
    """There it counts what training adds to the process, whose own memory rises and falls: limits lie between what plans take."""
    model = opened(engine="torch", memory_mb=10_000)
    assert begun(model, "mesp").train(most_steps=1).memory.planned_for_bytes == budgets[0]
    peaks = {one.memory_bytes: one.peak_bytes for one in model.planned_training() if one.method == "mesp"}
    model.set_limit((peaks[budgets[0]] + peaks[budgets[1]]) / 2e6)
    assert model.train(most_steps=1).memory.planned_for_bytes == budgets[1]
    model.set_limit(peaks[budgets[2]] / 2e6)
    with pytest.raises(BudgetExceeded, match="estimated peak"):
        model.train(most_steps=1)


def test_every_plan_proves_itself_on_both_runtimes(opened: Open, bundle: Path, budgets: list[int]) -> None:
    with read_bundle(bundle) as whole:
        checks = verify_bundle(whole).checks
    of_core = opened()._engine.verify()["checks"]  # type: ignore[attr-defined]
    for found in ([(one.method, one.what) for one in checks], [(one["method"], one["what"]) for one in of_core]):
        assert found.count(("mesp", "evaluation loss")) == found.count(("mezo", "evaluation loss")) == 2 * len(budgets)
        assert found.count(("generation", "next-token loss of prefill and decode")) == len(budgets)


def test_a_run_of_the_zeroth_order_takes_the_place_of_one_that_is_unfinished(
    opened: Open, budgets: list[int], tmp_path: Path
) -> None:
    """What an app does where even the smallest plans of a method took too much. All plans of mezo have room where those do."""
    model = begun(opened(memory_mb=budgets[2] / 1e6), "mesp")
    report = model.train(run_steps=2, method="mezo")
    assert (report.run, report.method, report.memory.planned_for_bytes) == (2, "mezo", budgets[0])
    assert newest_run(tmp_path / "alice")["method"] == "mezo"
