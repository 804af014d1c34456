# SPDX-License-Identifier: Apache-2.0
"""Accepted adapters: kept, rolled back, reset, exported, imported, forgotten; and a state that moves to another base."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.errors import AdapterError, ConfigError, DataError, StateError
from tests.support import reading
from tests.unit.personal_model.after_training import after, answers
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import changed, numbers, other_base, state_bits


def test_three_versions_are_kept_and_rollback_goes_through_them_to_the_base(alice: PersonalModel) -> None:
    seen = [answers(alice)]
    for _ in range(4):
        assert alice.train(run_steps=2).accepted
        seen.append(answers(alice))
    assert [version.run_id for version in alice.versions()] == [2, 3, 4]
    rolled = alice.rollback()
    assert rolled is not None
    assert rolled.run_id == 3
    assert answers(alice) == seen[3]
    alice.rollback()
    assert alice.rollback() is None
    assert answers(alice) == seen[0]
    assert alice.rollback() is None


def test_a_new_run_starts_from_the_adapter_that_answers(alice: PersonalModel) -> None:
    alice.train(run_steps=4)
    loss = alice.evaluate().loss
    report = alice.train(run_steps=1)
    assert report.run == 2
    assert report.validation_loss_before == pytest.approx(loss, rel=1e-6)
    assert reading.newest_run(alice._core.state)["started_from"] == 1


def test_rollback_ends_an_unfinished_run(alice: PersonalModel) -> None:
    assert alice.train(run_steps=6).accepted
    alice.train(stop=after(3))
    alice.rollback()
    assert reading.ended_because(alice._core.state, 2) == "rolled_back"
    assert alice.train(run_steps=1).run == 3


def test_reset_forgets_what_was_learned_and_keeps_the_examples(alice: PersonalModel, tmp_path: Path) -> None:
    base = answers(alice)
    alice.train(run_steps=4)
    assert state_bits(tmp_path / "alice")
    alice.reset()
    assert answers(alice) == base
    assert alice.versions() == []
    assert state_bits(tmp_path / "alice") == {}
    assert len(alice.examples) == 12
    assert alice.train(run_steps=1).steps == 1


def test_another_base_is_refused_until_the_state_is_reset_for_it(
    opened: Open, tiny_bundle: Path, tmp_path: Path
) -> None:
    model = opened()
    model.train(run_steps=4)
    model.close()
    bundle = changed(tiny_bundle, tmp_path / "other.bundle", other_base)
    with pytest.raises(StateError, match="base"):
        PersonalModel.open(bundle, tmp_path / "alice")
    with PersonalModel.reset_for_new_base(bundle, tmp_path / "alice") as moved:
        assert len(moved.examples) == 12
        assert moved.versions() == []
        assert moved.train(run_steps=1).steps == 1


def test_an_adapter_goes_out_and_comes_back_without_loss_and_only_onto_its_base(
    opened: Open, tiny_bundle: Path, tmp_path: Path
) -> None:
    model = opened()
    assert model.train().accepted
    folder = model.export_adapter(tmp_path / "adapter")
    bob = opened("bob", count=12)
    assert bob.import_adapter(folder) == 1
    assert answers(bob) == answers(model)
    assert bob.versions()[0].source == "adapter"
    assert bob.evaluate() == model.evaluate()
    other = opened("other", bundle=changed(tiny_bundle, tmp_path / "other.bundle", other_base))
    with pytest.raises(AdapterError):
        other.import_adapter(folder)
    with pytest.raises(ConfigError, match="onnx"):
        model.export_adapter(tmp_path / "no", format="onnx")  # type: ignore[arg-type]


def test_the_base_is_exported_only_where_it_is_asked_for(alice: PersonalModel, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="ask for base=True"):
        alice.export_adapter(tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
    assert (alice.export_adapter(tmp_path / "adapter", base=True) / "adapter_config.json").is_file()


def test_the_same_id_with_other_content_is_an_error_and_with_the_same_nothing(alice: PersonalModel) -> None:
    assert not alice.examples.add(numbers(0), id="number-0").created
    with pytest.raises(DataError, match="number-0"):
        alice.examples.add(numbers(1), id="number-0")
    assert len(alice.examples) == len(alice.examples.list()) == 12


def test_a_bundle_of_token_ids_refuses_text_and_says_why(alice: PersonalModel) -> None:
    for example in (
        {"text": "words"},
        {"prompt": "a", "completion": "b"},
        {"messages": [{"role": "user", "content": "hi"}]},
    ):
        with pytest.raises(DataError):
            alice.examples.add(example)
    with pytest.raises(DataError, match="130"):
        alice.examples.add({"tokens": [1, 131], "mask": [0, 1]})
    with pytest.raises(DataError):
        alice.examples.add({"tokens": [1, 2], "mask": [1, 0]})  # nothing would be trained


def test_forgetting_between_runs_removes_every_adapter_that_saw_it(opened: Open, tmp_path: Path) -> None:
    model = opened()
    assert model.train(run_steps=4).accepted
    late = model.examples.add({"tokens": [99, 98, 97, 96], "mask": [0, 1, 1, 1]}, id="late")
    kept = answers(model)
    assert model.train(run_steps=4).accepted
    assert model.train(run_steps=4).accepted  # started from one that saw it
    forgotten = model.examples.forget(late.id)
    assert (forgotten.example, forgotten.accepted_deleted, forgotten.run_stopped) == (True, 2, False)
    assert answers(model) == kept  # the newest one that never saw it
    assert len(state_bits(tmp_path / "alice")) == 1
    model.examples.forget("number-3")
    assert model.versions() == []
    assert state_bits(tmp_path / "alice") == {}
