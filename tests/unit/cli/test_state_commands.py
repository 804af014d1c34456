# SPDX-License-Identifier: Apache-2.0
"""examples, versions, rollback, reset, abandon: what PersonalModel does with a state, on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.locked import locked_by_a_trainer
from tests.unit.cli.commands import Answer, bespoke
from tests.unit.cli.conftest import Built, Trained

pytestmark = pytest.mark.xdist_group("cli")


class Alice:
    """A copy of a trained state of 12 examples and one accepted adapter, to be changed."""

    def __init__(self, bundle: Path, state: Path) -> None:
        self._bundle, self.state = bundle, state

    def __call__(self, *verb: str, **more: str) -> Answer:
        """One command on this state: alice("versions"), alice("examples", "forget", ID)."""
        first, rest = (verb[:2], verb[2:]) if verb[0] == "examples" else (verb[:1], verb[1:])
        return bespoke(
            *first, self._bundle, *rest, "--state", self.state, *more.get("flags", "").split(), "--format", "json"
        )

    def text(self, *verb: str) -> str:
        first, rest = (verb[:2], verb[2:]) if verb[0] == "examples" else (verb[:1], verb[1:])
        return bespoke(*first, self._bundle, *rest, "--state", self.state).ok().out


@pytest.fixture
def alice(built: Built, trained: Trained, tmp_path: Path) -> Alice:
    shutil.copytree(trained.state, tmp_path / "alice")
    return Alice(built.bundle, tmp_path / "alice")


def test_examples_are_listed_with_what_each_counts(alice: Alice) -> None:
    listed = alice("examples", "list").ok().json["examples"]
    assert len(listed) == 12
    assert {one["split"] for one in listed} == {"train", "validation"}
    assert all(one["tokens"] >= one["trained_tokens"] > 0 for one in listed)
    assert listed[0]["json"]["text"].startswith("First Citizen")
    text = alice.text("examples", "list")
    assert len(text.splitlines()) == 1 + 12
    assert all(one["id"] in text for one in listed)
    assert "First Citizen" in text.splitlines()[1]


def test_an_example_is_forgotten_with_the_adapters_that_saw_it(alice: Alice) -> None:
    id = next(one["id"] for one in alice("examples", "list").ok().json["examples"] if one["split"] == "train")
    forgotten = {"example": True, "accepted_deleted": 1, "run_stopped": False, "numbers_dropped": 0, "rounds": []}
    assert alice("examples", "forget", id).ok().json == forgotten
    assert id not in alice.text("examples", "list")
    assert alice("versions").ok().json == {"versions": []}
    again = alice("examples", "forget", id)
    assert (again.code, again.json["error"]["kind"]) == (5, "DataError")
    assert again.json["error"]["next_step"] == "See which there are: bespoke examples list"


def test_versions_are_listed_and_rolled_back_to_the_base(alice: Alice) -> None:
    alice("train", flags="--run-steps 20").ok()
    versions = alice("versions").ok().json["versions"]
    assert [version["run_id"] for version in versions] == [1, 2]
    assert alice.text("versions").splitlines()[-1].split()[:4] == ["2", "run", "2", "20"]
    assert alice("rollback").ok().json == {"answers": versions[0]}
    assert alice.text("rollback") == "the base model answers\n"
    assert alice("versions").ok().json["versions"] == []
    assert alice("rollback").ok().json == {"answers": None}


@pytest.mark.slow
def test_reset_forgets_what_was_learned_and_keeps_the_examples(alice: Alice, trained: Trained) -> None:
    loss_of_the_base = trained.answer.json["validation_loss_before"]
    assert alice.text("reset") == "the base model answers; 12 examples are kept\n"
    assert alice("versions").ok().json["versions"] == []
    assert alice("train", flags="--run-steps 1").ok().json["validation_loss_before"] == pytest.approx(loss_of_the_base)


def test_an_unfinished_run_is_abandoned_once(built: Built, alice: Alice) -> None:
    from bespoke import PersonalModel

    with PersonalModel.open(built.bundle, alice.state) as model:
        assert model.train(run_steps=9, stop=lambda: True).stopped_because == "stop_requested"
    assert alice("abandon").ok().json == {"abandoned": True}
    assert alice.text("abandon") == "there was no unfinished run\n"
    assert alice("abandon").ok().json == {"abandoned": False}


@pytest.mark.parametrize("verb", [("rollback",), ("reset",), ("abandon",)], ids=" ".join)
def test_nothing_is_taken_from_under_a_trainer(alice: Alice, verb: tuple[str, ...]) -> None:
    with locked_by_a_trainer(alice.state):
        answer = alice(*verb)
    assert (answer.code, answer.json["error"]["kind"]) == (9, "StateLocked")
