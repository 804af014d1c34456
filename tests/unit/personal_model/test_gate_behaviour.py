# SPDX-License-Identifier: Apache-2.0
"""The gate on behaviour rows: answers to other questions may not become much worse than the base model's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import DataError
from bespoke.rules.judged import JUDGED_POSITIONS
from tests.support.bundles import drop_fields_of_1_7
from tests.unit.bundle.example import replace_manifest
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import STOP, answering, changed, other, with_behaviour, with_general

HARD: dict[str, Any] = {"run_steps": 25, "learning_rate": 3e-2}


def unended(count: int = 12) -> list[dict[str, Any]]:
    """Rows whose answers have no end, so that no answer is asked for."""
    return [other(index) for index in range(count)]


def ended(count: int = 6) -> list[dict[str, Any]]:
    return [{"tokens": [100 + index, 101, 102, 103, STOP], "mask": [0, 0, 1, 1, 1]} for index in range(count)]


def rewrite(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((bundle / "manifest.json").read_text())
    change(document)
    replace_manifest(bundle, json.dumps(document).encode())


def test_behaviour_that_gets_worse_than_the_base_is_refused(opened: Open, tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = with_behaviour(tiny_bundle, tmp_path / "b", unended())
    model = opened("strict", bundle=bundle)
    before = answering(model)
    strict = model.train(**HARD, general_tolerance=0.0)
    assert strict.gain > strict.least_gain
    assert strict.behaviour_loss > strict.behaviour_loss_base
    assert (strict.accepted, strict.refused_because) == (False, "behaviour_worse")
    assert "answers to other questions became much worse" in str(strict)
    assert all((before[name] == piece).all() for name, piece in answering(model).items())
    kept = opened("tolerant", bundle=bundle).train(**HARD, general_tolerance=10.0)
    assert kept.behaviour_loss == strict.behaviour_loss
    assert (kept.accepted, kept.answers_unchecked_because) == (True, "few_answers")


def test_of_what_costs_other_answers_too_much_a_part_is_kept(opened: Open, tiny_bundle: Path, tmp_path: Path) -> None:
    rehearsing = with_general(tiny_bundle, tmp_path / "r", [other(100 + index) for index in range(12)], [])
    bundle = with_behaviour(rehearsing, tmp_path / "b", unended())
    free, bound = opened("free", bundle=bundle), opened("bound", bundle=bundle)
    settings = {**HARD, "general_share": 0.02}  # it rehearses, though too little
    whole = free.train(**settings, general_tolerance=10.0)
    assert whole.adapter_scale is None
    tolerance = (whole.behaviour_loss / whole.behaviour_loss_base - 1) / 4
    part = bound.train(**settings, general_tolerance=tolerance)
    assert part.accepted, part.why_refused
    assert part.losses == whole.losses
    assert 0.1 < part.adapter_scale < 0.8
    assert f"yes, with {part.adapter_scale:.0%} of the change that was learned" in str(part)
    assert part.behaviour_loss <= part.behaviour_loss_base * (1 + tolerance)
    assert bound.evaluate_behaviour().evaluation.loss == pytest.approx(part.behaviour_loss, rel=1e-6)
    kept = answering(bound)
    for name, piece in answering(free).items():
        scale = part.adapter_scale if name.endswith("lora_B") else 1
        assert kept[name] == pytest.approx(piece * scale, rel=1e-5)


def test_a_second_run_is_compared_with_the_base_too(opened: Open, tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = with_behaviour(tiny_bundle, tmp_path / "b", unended())
    model = opened(bundle=bundle)
    first, second = (model.train(**HARD, general_tolerance=10.0, useful_gain=0.0) for _ in range(2))
    assert first.accepted
    assert second.behaviour_loss_base == first.behaviour_loss_base
    measured = model.evaluate_behaviour()
    assert measured.evaluation.base_loss == pytest.approx(first.behaviour_loss_base)
    answered = second if second.accepted else first
    assert measured.evaluation.loss == pytest.approx(answered.behaviour_loss, rel=1e-6)
    assert measured.answers == ()  # it takes token ids only
    assert measured.evaluation.loss == pytest.approx(model.evaluate(unended()).loss, rel=1e-6)


def test_answers_that_do_not_end_any_more_are_refused(opened: Open, tiny_bundle: Path, tmp_path: Path) -> None:
    """A random model never ends an answer: here the base is said to have ended all of them."""
    bundle = with_behaviour(tiny_bundle, tmp_path / "b", ended())
    model = opened(bundle=bundle)
    report = model.train(general_tolerance=10.0)
    assert (report.accepted, report.refused_because) == (False, "answers_endless")
    assert (report.checked_answers, report.base_answer_tokens) == (0 + 4, 2.0)
    assert report.answer_tokens > 50
    assert model.versions() == []
    assert model.train(general_tolerance=10.0).losses == report.losses  # another run from the base: nothing has stayed


def test_a_bundle_without_plans_for_answers_is_judged_by_loss(opened: Open, tiny_bundle: Path, tmp_path: Path) -> None:
    def without_answers(document: dict[str, Any]) -> None:
        file = document["generation"]["file"]
        document.update(generation=None, smaller_generation=[])
        del document["files"][file]
        (bundle / file).unlink()

    bundle = with_behaviour(tiny_bundle, tmp_path / "b", ended())
    rewrite(bundle, without_answers)
    report = opened(bundle=bundle).train(general_tolerance=10.0)
    assert report.accepted
    assert (report.checked_answers, report.answers_unchecked_because) == (0, "no_plan")
    assert report.behaviour_loss is not None
    assert "the bundle has no plan for answers" in str(report)


def test_an_older_bundle_is_judged_as_before(opened: Open, tiny_bundle: Path, tmp_path: Path) -> None:
    def older(document: dict[str, Any]) -> None:
        document["format_version"]["minor"] = 6
        drop_fields_of_1_7(document)

    bundle = changed(tiny_bundle, tmp_path / "older")
    rewrite(bundle, older)
    model = opened(bundle=bundle)
    report = model.train()
    assert report.accepted
    assert (report.behaviour_loss, report.behaviour_loss_base, report.behaviour_tokens) == (None, None, 0)
    assert "behaviour" not in str(report)
    with pytest.raises(DataError, match="behaviour rows"):
        model.evaluate_behaviour()


def test_of_many_behaviour_rows_a_bounded_sample_is_read(opened: Open, tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = with_behaviour(tiny_bundle, tmp_path / "b", unended(700))  # of eight tokens each
    model = opened(bundle=bundle)
    measured = model.evaluate_behaviour().evaluation
    assert 0.95 * JUDGED_POSITIONS < measured.tokens <= JUDGED_POSITIONS
    assert measured.examples < 700
    assert measured.loss == pytest.approx(measured.base_loss, rel=1e-6)
