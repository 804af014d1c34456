# SPDX-License-Identifier: Apache-2.0
"""The locks by which SQLite knows that a database is in use stay, with any use of a second handle in the same process.

A process that opens and closes a locked file by any descriptor drops all its POSIX locks on that file ("How To Corrupt An SQLite
Database File", 2.2): only SQLite may open the database.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.sharing import outside
from tests.sharing.c_api import CModel
from tests.unit.personal_model.tiny import add_numbers, numbers

VERBS: dict[str, Callable[[PersonalModel, Path], object]] = {
    "add": lambda model, place: model.examples.add(numbers(99), id="another"),
    "list": lambda model, place: model.examples.list(),
    "evaluate": lambda model, place: model.evaluate(split="train"),
    "train": lambda model, place: model.train(run_steps=1),
    "export": lambda model, place: model.export_adapter(place / "adapter"),
    "import": lambda model, place: model.import_adapter(place / "adapter"),
    "versions": lambda model, place: model.versions(),
    "generate": lambda model, place: list(model.generate_ids([40, 41], max_tokens=2)),
    "rollback": lambda model, place: model.rollback(),
    "abandon": lambda model, place: model.abandon_run(),
    "forget": lambda model, place: model.examples.forget("another"),
    "reset": lambda model, place: model.reset(),
    "close": lambda model, place: model.close(),
}


def test_no_verb_of_a_second_handle_drops_the_locks_of_the_first(tiny_bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "alice"
    with PersonalModel.open(tiny_bundle, state) as model:
        add_numbers(model)
        assert outside.locks(state, os.getpid()) >= outside.OPEN
        second = PersonalModel.open(tiny_bundle, state)
        dropped = {"open"} if not outside.locks(state, os.getpid()) >= outside.OPEN else set()
        for name, verb in VERBS.items():
            verb(second, tmp_path)
            model.examples.list()  # a read lock that is taken and given back meanwhile says nothing
            if not outside.locks(state, os.getpid()) >= outside.OPEN:
                dropped.add(name)
        assert dropped == set()
        assert len(model.examples) == 12
    assert outside.locks(state, os.getpid()) == set()


def test_a_second_handle_of_the_core_leaves_the_locks_of_the_first(
    core: Path, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    state = tmp_path / "alice"
    with PersonalModel.open(tiny_core_bundle, state) as model:
        add_numbers(model)
    with CModel(core, tiny_core_bundle, state) as first:
        assert first.locks() >= outside.OPEN
        first.open_again()
        assert first.locks() >= outside.OPEN
        first.train()
        assert first.locks() >= outside.OPEN
        first.close_again()
        assert first.locks() >= outside.OPEN


@pytest.mark.parametrize("engine", ["torch", "executorch"])
def test_a_state_below_a_linked_folder_is_the_same_state(
    core: Path, tiny_core_bundle: Path, tmp_path: Path, engine: str
) -> None:
    """As phones have them: /data/user/0 and /var are links. The core's SQLite refuses links, so the folder is resolved first."""
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    with PersonalModel.open(tiny_core_bundle, tmp_path / "linked" / "alice", engine=engine) as model:
        add_numbers(model)
        assert model.train(run_steps=1).steps == 1
        with PersonalModel.open(tiny_core_bundle, tmp_path / "real" / "alice") as other:
            assert len(other.examples) == 12
            assert outside.locks(tmp_path / "real" / "alice", os.getpid()) >= outside.OPEN
        other_half = model.examples.add(numbers(77), id="through the link")
    assert other_half.id in outside.example_ids(tmp_path / "real" / "alice")
