# SPDX-License-Identifier: Apache-2.0
"""Runs: continued, stopped at any instruction, replaced, diverged. What counts is the bits that they end with."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from bespoke import PersonalModel
from bespoke.errors import ConfigError, DataError
from bespoke.rules.report import Progress
from bespoke.rules.schedule import learning_rate_at
from tests.support import reading
from tests.support.checks import few_of
from tests.unit.personal_model.after_training import after, answers
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import METHODS, POISON, STEPS, add_numbers, numbers, poisoned


def calls_of_a_step(model: PersonalModel, method: str) -> int:
    """How often `stop` is asked in a first step."""
    calls = 0

    def count() -> bool:
        nonlocal calls
        calls += 1
        return False

    model.train(run_steps=1, method=method, stop=count)
    return calls


def newest_slot(model: PersonalModel) -> tuple[int, dict[str, np.ndarray]] | None:
    """Its step and its tensors."""
    steps = reading.select(model._core.state, "SELECT step FROM slots ORDER BY id DESC LIMIT 1")
    return (steps[0][0], reading.slot(model._core.state)) if steps else None


@pytest.mark.parametrize("method", few_of(METHODS, ("mesp",)))
@pytest.mark.parametrize("stops", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_a_run_stopped_at_random_instructions_ends_bit_equal_to_one_in_a_single_call(
    opened: Open, method: str, stops: int
) -> None:
    straight = opened("straight").train(method=method)
    calls = calls_of_a_step(opened("count"), method)
    chance = random.Random(METHODS.index(method))
    model = opened("stopped")
    losses: list[float] = []
    reasons = []
    for _ in range(stops):
        report = model.train(method=method, stop=after(chance.randint(0, calls + calls // 2)))
        losses += report.losses
        reasons.append(report.stopped_because)
    report = model.train()
    losses += report.losses
    assert set(reasons) <= {"stop_requested", "finished"}
    assert reasons[0] == "stop_requested"
    if "finished" not in reasons:
        assert report.stopped_because == "finished"
        assert report.validation_loss == straight.validation_loss
        assert tuple(losses) == straight.losses


def test_the_steps_of_a_call_bound_it_and_not_the_run(alice: PersonalModel) -> None:
    first = alice.train(most_steps=1)
    assert (first.run, first.steps, first.total_steps, first.stopped_because) == (1, 1, 1, "steps_done")
    assert first.accepted is None
    second = alice.train(most_steps=5)
    assert (second.run, second.steps, second.total_steps, second.stopped_because) == (1, 5, 6, "steps_done")
    third = alice.train(most_steps=100)
    assert (third.run, third.steps, third.total_steps, third.stopped_because) == (1, STEPS - 6, STEPS, "finished")
    assert alice.train(run_steps=1).run == 2


@pytest.mark.parametrize("method", few_of(METHODS, ("mesp", "mezo")))
def test_a_run_of_eight_steps_is_one_run_in_four_calls(opened: Open, method: str) -> None:
    """The optimizer goes on, one verdict comes at the end, and one version is added to those that are there."""
    whole, model = opened("whole"), opened("parts")
    expected = whole.train(run_steps=8, method=method)
    reports = [model.train(run_steps=8, most_steps=2, method=method) for _ in range(4)]
    assert [report.stopped_because for report in reports] == ["steps_done"] * 3 + ["finished"]
    assert [report.accepted for report in reports] == [None] * 3 + [expected.accepted]
    assert {report.run for report in reports} == {1}
    assert tuple(loss for report in reports for loss in report.losses) == expected.losses
    assert reports[-1].validation_loss == expected.validation_loss
    assert len(model.versions()) == expected.accepted
    assert answers(model) == answers(whole)


@pytest.mark.slow
def test_a_schedule_spans_the_run_and_not_the_call(opened: Open) -> None:
    settings = {"schedule": "linear", "warmup_steps": 3}
    whole = opened("whole").train(**settings)
    model = opened("parts")
    model.train(stop=after(0), **settings)
    losses = [loss for steps in (2, 3, 7) for loss in model.train(most_steps=steps).losses]
    assert tuple(losses) == whole.losses
    # SGD's first step moves by the rate itself; AdamW's first step moves every element by nearly the rate
    peak = 1e-2
    first = learning_rate_at(1, peak=peak, schedule="linear", warmup_steps=3, total_steps=STEPS)
    moved = opened("one")
    moved.train(stop=after(0), **settings)
    moved.train(most_steps=1)
    slot = reading.slot(moved._core.state)
    step = max(np.abs(value).max() for name, value in slot.items() if name.endswith("lora_B"))
    assert step == pytest.approx(first, rel=1e-3)


def test_settings_may_be_overridden_where_a_run_starts_and_only_there(alice: PersonalModel) -> None:
    alice.train(learning_rate=0.5, seed=9, stop=after(0))
    run = alice._core.current_run()
    assert run is not None
    assert (run.settings["training"]["learning_rate"], run.seed) == (0.5, 9)
    assert alice.train(most_steps=1, learning_rate=0.5, seed=9).run == run.id  # the same again is no other setting
    assert alice.train(run_steps=STEPS, most_steps=1).run == run.id
    for other in ({"learning_rate": 0.25}, {"seed": 10}, {"run_steps": STEPS + 1}):
        with pytest.raises(ConfigError, match="unfinished run") as refused:
            alice.train(most_steps=1, **other)
        assert f"({next(iter(other))})" in refused.value.got
        assert "abandon_run" in refused.value.next_step
    assert alice.abandon_run()
    assert not alice.abandon_run()
    assert alice.train(run_steps=1, learning_rate=0.25).run == run.id + 1


@pytest.mark.parametrize(
    "setting", [{"batch_size": 3}, {"sequence_lengths": (8,)}, {"accumulation": 2}, {"clip_norm": 1.0}]
)
def test_what_is_compiled_cannot_be_overridden_and_a_refusal_ends_no_run(
    alice: PersonalModel, setting: dict[str, object]
) -> None:
    alice.train(method="mezo", stop=after(0))
    with pytest.raises(ConfigError):
        alice.train(method="mesp", **setting)
    with pytest.raises(ConfigError):
        alice.train(method="mesp", no_such_setting=1)
    with pytest.raises(ConfigError, match="no method of that name"):
        alice.train(method="none")
    run = alice._core.current_run()
    assert run is not None
    assert run.method == "mezo"


def test_more_micro_batches_may_be_asked_of_a_method_that_accumulates(alice: PersonalModel) -> None:
    assert (
        alice.train(run_steps=1, method="mebp", accumulation=3).tokens > alice.train(run_steps=1, method="mebp").tokens
    )


def test_another_method_starts_a_new_run_and_none_named_continues(alice: PersonalModel) -> None:
    first = alice.train(method="mezo", stop=after(0))
    assert alice.train(most_steps=1).method == "mezo"
    other = alice.train(run_steps=1, method="mesp")
    assert (other.method, other.run) == ("mesp", first.run + 1)
    assert reading.ended_because(alice._core.state, first.run) == "replaced"
    alice.abandon_run()
    assert alice.train(run_steps=1).method == "mesp"  # the first of the bundle


def test_training_without_anything_to_train_on_is_refused_and_leaves_no_run_behind(opened: Open) -> None:
    model = opened(count=0)
    with pytest.raises(DataError, match="no example"):
        model.train(run_steps=1)
    assert model._core.current_run() is None
    add_numbers(model, 2)
    assert model.train(run_steps=1).steps == 1


def test_an_error_of_a_callback_loses_no_step(opened: Open) -> None:
    whole = opened("whole").train()
    model = opened("broken")

    def break_down(step: int, loss: float) -> None:
        if step == 4:
            raise InterruptedError("the app went away")

    with pytest.raises(InterruptedError):
        model.train(on_step=break_down, commit_seconds=1e6)
    report = model.train()
    assert report.steps == STEPS - 4
    assert report.losses == whole.losses[4:]
    assert answers(model) == answers(opened("whole"))


def test_on_step_gets_each_step_and_its_loss(alice: PersonalModel) -> None:
    steps: list[tuple[int, float]] = []
    report = alice.train(run_steps=3, on_step=lambda step, loss: steps.append((step, loss)))
    assert steps == list(enumerate(report.losses, 1))


def test_on_progress_is_told_what_goes_on_and_the_memory_that_it_takes(alice: PersonalModel) -> None:
    told: list[Progress] = []
    report = alice.train(on_progress=told.append)
    assert [one.loss for one in told if one.phase == "step"] == list(report.losses)
    assert {one.phase for one in told} == {"open", "step", "commit", "judge"}
    assert all(one.loss is None for one in told if one.phase != "step")
    assert told[-1].step == told[-1].steps == STEPS
    assert all(one.footprint_bytes > 0 for one in told)


@pytest.fixture
def poison(tiny_bundle: Path, tmp_path: Path) -> Path:
    return poisoned(tiny_bundle, tmp_path / "poison.bundle")


@pytest.mark.parametrize("method", few_of(METHODS, ("mesp",)))
def test_a_step_with_a_nan_loss_is_rejected_and_the_run_goes_on(opened: Open, poison: Path, method: str) -> None:
    straight, parts = (opened(name, bundle=poison) for name in ("straight", "parts"))
    for model in (straight, parts):
        assert model.examples.add({"tokens": [1, POISON, 2], "mask": [0, 1, 1]}, id="bad").split == "train"
    report = straight.train(method=method)
    bad = [step for step, loss in enumerate(report.losses, 1) if not np.isfinite(loss)]
    assert 0 < len(bad) == report.rejected_steps < STEPS
    assert (report.stopped_because, report.steps) == ("finished", STEPS)
    assert [entry["step"] for entry in reading.metrics(straight._core.state, 1) if entry["rejected"]] == bad
    parts.train(method=method, stop=after(0))
    before = bad[0] - 1
    losses = list(parts.train(most_steps=before).losses if before else [])
    kept = newest_slot(parts)
    losses += parts.train(most_steps=1).losses
    slot = newest_slot(parts)
    if method != "mezo" and kept is not None and slot is not None:  # state kept, cursor moved
        assert slot[0] == kept[0] + 1
        assert all(np.array_equal(slot[1][name], tensor) for name, tensor in kept[1].items())
    losses += parts.train().losses
    assert np.array_equal(losses, report.losses, equal_nan=True)


@pytest.mark.parametrize("parts", [1, 2])
def test_three_rejected_steps_in_a_row_end_the_run_even_when_it_was_resumed_between_them(
    opened: Open, poison: Path, parts: int
) -> None:
    model = opened(count=0, bundle=poison)
    for number in range(4):
        model.examples.add({"tokens": [number, POISON, 2], "mask": [0, 1, 1]})
    if parts == 2:
        model.train(stop=after(0))
        assert model.train(most_steps=2).stopped_because == "steps_done"
        assert model._core.current_run() is not None
    report = model.train()
    assert (report.stopped_because, report.total_steps) == ("diverged", 3)
    assert report.steps == report.rejected_steps == (3 if parts == 1 else 1)
    assert not report.accepted
    assert model._core.current_run() is None
    assert reading.ended_because(model._core.state, 1) == "diverged"
    assert model.versions() == []


def test_a_run_killed_after_its_third_rejected_step_ends_without_another(opened: Open, poison: Path) -> None:
    model = opened(count=0, bundle=poison)
    for number in range(4):
        model.examples.add({"tokens": [number, POISON, 2], "mask": [0, 1, 1]})

    def die(step: int, loss: float) -> None:
        if step == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        model.train(on_step=die)
    report = model.train()
    assert (report.stopped_because, report.steps, report.total_steps) == ("diverged", 0, 3)


def test_a_run_sees_the_examples_that_were_there_when_it_started(opened: Open) -> None:
    whole = opened("whole").train()
    model = opened("grows")
    model.train(run_steps=4, stop=after(0))
    model.abandon_run()
    model.train(stop=after(0))
    model.train(most_steps=6)
    add_numbers(model, 5, first=40)
    model.examples.add(numbers(50), id="late")
    report = model.train()
    assert report.losses == whole.losses[6:]
    assert answers(model) == answers(opened("whole"))
