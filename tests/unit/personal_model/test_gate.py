# SPDX-License-Identifier: Apache-2.0
"""The acceptance gate: what was learned answers only if it is better, and nothing else got worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import PersonalModel
from bespoke.errors import DataError
from tests.support.oracle import trained_alike
from tests.unit.personal_model.after_training import after, answers
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import numbers, other, split_of, with_general


def contrary(model: PersonalModel) -> PersonalModel:
    """Examples of which training on some makes the others, kept for validation, less likely."""
    held_out = 0
    for index in range(12):
        split = split_of(f"id-{index}", index + 1, held_out)
        held_out += split == "validation"
        added = model.examples.add(other(index) if split == "validation" else numbers(index), id=f"id-{index}")
        assert added.split == split
    assert held_out
    return model


def test_a_better_adapter_is_accepted_and_the_report_says_what_evaluation_says(alice: PersonalModel) -> None:
    before = alice.evaluate()
    report = alice.train()
    assert report.accepted
    assert report.judged_on == "validation"
    assert report.validation_loss_before == pytest.approx(before.loss, rel=1e-6)
    assert report.validation_loss == pytest.approx(alice.evaluate().loss, rel=1e-6)
    assert report.gain > report.least_gain
    assert (report.general_loss_before, report.general_loss) == (None, None)
    (version,) = alice.versions()
    assert version.metrics == {
        "validation_loss": report.validation_loss,
        "validation_loss_before": report.validation_loss_before,
    }


def test_a_worse_adapter_is_refused_and_a_finished_run_discarded(opened: Open) -> None:
    alice = contrary(opened(count=0))
    base = answers(alice)
    report = alice.train()
    assert report.validation_loss is not None
    assert report.validation_loss_before is not None
    assert report.validation_loss > report.validation_loss_before
    assert (report.accepted, report.stopped_because) == (False, "finished")
    assert alice.versions() == []
    assert answers(alice) == base
    assert alice._core.current_run() is None


def test_a_slice_that_does_not_end_its_run_judges_nothing(opened: Open) -> None:
    alice = contrary(opened(count=0))
    alice.train(stop=after(0))
    report = alice.train(most_steps=6)
    assert (report.accepted, report.judged, report.stopped_because) == (None, False, "steps_done")
    assert (report.validation_loss_before, report.validation_loss, report.judged_on) == (None, None, None)
    assert alice.train(most_steps=1).total_steps == 7


def test_below_five_examples_the_training_loss_is_judged(opened: Open) -> None:
    model = opened(count=4)
    report = model.train()
    assert report.judged_on == "train"
    assert report.accepted
    assert report.validation_loss == pytest.approx(model.evaluate(split="train").loss, rel=1e-6)
    with pytest.raises(DataError, match="validation"):
        model.evaluate()


@pytest.mark.slow
def test_the_gate_compares_with_the_adapter_that_answers_now(alice: PersonalModel) -> None:
    first = alice.train()
    second = alice.train(run_steps=1, learning_rate=1e-4)
    assert first.accepted
    assert second.validation_loss_before == first.validation_loss


def general(bundle: Path, place: Path) -> Path:
    return with_general(
        bundle, place / "general.bundle", [other(i) for i in range(40, 60)], [other(i) for i in range(60, 66)]
    )


@pytest.mark.slow
def test_general_data_that_gets_worse_beyond_the_tolerance_refuses(
    opened: Open, tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = general(tiny_bundle, tmp_path)
    hard: dict[str, Any] = {"run_steps": 25, "learning_rate": 3e-2, "general_share": 0.0}
    strict = opened("strict", bundle=bundle).train(**hard, general_tolerance=0.0)
    assert strict.general_loss is not None
    assert strict.general_loss_before is not None
    assert strict.gain > strict.least_gain
    assert strict.general_loss > strict.general_loss_before
    assert not strict.accepted
    tolerated = opened("tolerant", bundle=bundle).train(**hard, general_tolerance=10.0)
    assert tolerated.general_loss == strict.general_loss
    assert tolerated.accepted


def test_without_examples_all_batches_come_from_the_bundle_and_its_loss_decides(
    opened: Open, tiny_bundle: Path, tmp_path: Path
) -> None:
    model = opened(count=0, bundle=general(tiny_bundle, tmp_path))
    report = model.train()
    assert report.judged_on is None
    assert (report.validation_loss_before, report.validation_loss) == (None, None)
    assert report.general_loss is not None
    assert report.general_loss_before is not None
    assert report.accepted == (report.general_loss < report.general_loss_before)
    assert report.accepted


@pytest.mark.slow
def test_the_share_of_general_batches_changes_what_is_trained_on(
    opened: Open, tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = general(tiny_bundle, tmp_path)
    none, all_ = (opened(f"share-{share}", bundle=bundle).train(general_share=share) for share in (0.0, 1.0))
    assert none.general_loss is not None
    assert all_.general_loss is not None
    assert all_.general_loss < none.general_loss


def test_nothing_is_judged_where_nothing_was_learned(alice: PersonalModel) -> None:
    report = alice.train(stop=after(0))
    assert not report.accepted
    assert report.validation_loss == report.validation_loss_before
    assert alice.versions() == []


def test_the_report_carries_memory_bytes_and_time(alice: PersonalModel, tiny_bundle: Path, tmp_path: Path) -> None:
    report = alice.train(run_steps=3)
    memory = report.memory
    assert memory.idle_bytes > 0
    assert 0 < report.peak_bytes == memory.peak_bytes < 2 * memory.estimate_bytes
    assert memory.limit_bytes is None
    assert memory.file_bytes > 0
    assert memory.mapped_dirty_bytes >= 0
    assert len(report.step_peak_bytes) == 3
    assert report.bytes_written >= 0
    assert report.seconds > 0
    assert report.tokens == trained_alike(tiny_bundle, tmp_path / "alice").tokens
    assert report.as_dict()["peak_bytes"] == report.peak_bytes


@pytest.mark.parametrize("count", [12, 4])  # judged on held-out examples, and on those of training
def test_a_gain_that_nobody_notices_is_refused_and_the_report_says_so(opened: Open, count: int) -> None:
    unnoticed: dict[str, Any] = {"learning_rate": 1e-6}
    taken = opened("taken", count=count).train(**unnoticed, useful_gain=0.0)
    assert taken.accepted  # it is more than luck
    model = opened("refused", count=count)
    base = answers(model)
    report = model.train(**unnoticed)
    assert report.losses == taken.losses
    assert (report.accepted, report.refused_because) == (False, "too_small")
    assert report.useful_gain == pytest.approx(0.002 * report.validation_loss_before)
    assert report.least_gain < report.gain == taken.gain < report.useful_gain
    assert "is of no use" in report.why_refused
    assert (model.versions(), answers(model)) == ([], base)
    assert model.train().accepted  # at its own rate


def test_where_only_general_texts_judge_their_gain_has_to_be_of_use(
    opened: Open, tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = general(tiny_bundle, tmp_path)
    report = opened(count=0, bundle=bundle).train(learning_rate=1e-6)
    assert report.general_loss < report.general_loss_before
    assert (report.accepted, report.refused_because, report.judged_on) == (False, "too_small", None)
    assert report.useful_gain == pytest.approx(0.002 * report.general_loss_before)
    assert "bundle's own texts" in report.why_refused


def test_a_call_that_ends_before_its_run_asks_for_no_gain(alice: PersonalModel) -> None:
    alice.train(learning_rate=1e-6, stop=after(0))
    report = alice.train(most_steps=2)
    assert (report.accepted, report.useful_gain, report.refused_because) == (None, None, None)
    assert alice.train().refused_because == "too_small"


def test_a_nan_loss_is_never_better(opened: Open) -> None:
    report = opened().train(run_steps=4, learning_rate=1e30)
    assert report.validation_loss is None or not np.isfinite(report.validation_loss) or not report.accepted
    assert not report.accepted


def test_of_a_long_text_the_gate_looks_at_a_bounded_sample_and_says_so(opened: Open) -> None:
    """One example of 40,000 tokens: 2,500 windows, of which judging it twice reads a few hundred."""
    model = opened(count=0)
    model.examples.add({"tokens": [40 + place % 6 for place in range(40_001)]}, id="book")
    report = model.train(run_steps=1)
    assert (report.judged_tokens, report.judged_of_tokens) == (4096, 40_000)
    assert report.judged_on == "train"


def test_of_few_examples_the_gate_looks_at_all(alice: PersonalModel) -> None:
    report = alice.train(run_steps=1)
    rows = [
        numbers(int(info.id.removeprefix("number-"))) for info in alice.examples.list() if info.split == "validation"
    ]
    assert report.judged_tokens == report.judged_of_tokens == sum(len(row["tokens"]) - 1 for row in rows)
