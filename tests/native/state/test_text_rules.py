# SPDX-License-Identifier: Apache-2.0
"""A state whose rows were made by other text rules: all examples are tokenized again, in one transaction, or none is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import DataError, StateError, StateLocked
from tests.native.core_store import CoreStore
from tests.native.state.states import BASE, SHAPES, fill, token_row
from tests.support.reading import read_state

FIRST, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def program(native_build: Path) -> Path:
    return native_build / "tests" / "state_lab"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path / "alice")
    return tmp_path / "alice"


def opened(program: Path, folder: Path) -> CoreStore:
    return CoreStore.open(program, folder, BASE, SHAPES)


def two_rows(example: dict[str, Any]) -> list[Any]:
    return [token_row(1, 2, 3, len(example["text"])), token_row(7, 8)]


def none_asked(example: dict[str, Any]) -> list[Any]:
    raise AssertionError(example)


def test_rows_of_other_rules_are_made_again_and_what_was_learned_stays(program: Path, folder: Path) -> None:
    with opened(program, folder) as store:
        before = store.examples()
        store.use_text_rules(FIRST, none_asked)  # a state that does not know its rules takes those that come first
        assert store.current_run() is not None
        store.use_text_rules(OTHER, two_rows)
        after = store.examples()
        assert [(info.id, info.split, info.json) for info in after] == [
            (info.id, info.split, info.json) for info in before
        ]
        assert {(info.tokens, info.trained_tokens, info.rows) for info in after} == {(6, 2, 2)}
        assert store.current_run() is None  # it counted rows that are gone
        assert len(store.accepted()) == 1
        store.use_text_rules(OTHER, none_asked)
    with opened(program, folder) as store:
        store.use_text_rules(OTHER, none_asked)
    assert not {one["promise"] for one in read_state(folder)["broken"]} & {
        "rows",
        "examples",
        "state",
        "losses",
        "slots",
    }


def test_examples_that_no_longer_fit_are_named_and_nothing_is_changed(program: Path, folder: Path) -> None:
    def refuse(example: dict[str, Any]) -> list[Any]:
        if "3." in example["text"] or "5." in example["text"]:
            raise DataError("tokens", got="token 900", expected="0 to 511", next_step="Change it")
        return two_rows(example)

    with opened(program, folder) as store:
        store.use_text_rules(FIRST, none_asked)
    before = read_state(folder)["digest"]
    with opened(program, folder) as store, pytest.raises(StateError) as caught:
        store.use_text_rules(OTHER, refuse)
    assert "2 that the bundle cannot take: 'note-3' (token 900); 'note-5' (token 900)" in caught.value.got
    assert "forget them" in caught.value.next_step
    assert read_state(folder)["digest"] == before


def test_rows_are_not_changed_under_a_run_that_trains(program: Path, folder: Path) -> None:
    with opened(program, folder) as trainer, opened(program, folder) as store, trainer.trainer_lock():
        store.use_text_rules(FIRST, none_asked)
        with pytest.raises(StateLocked):
            store.use_text_rules(OTHER, two_rows)
        assert store.current_run() is not None


def test_a_state_without_examples_takes_any_rules(program: Path, tmp_path: Path) -> None:
    for rules in (FIRST, OTHER):
        with opened(program, tmp_path / "new") as store:
            store.use_text_rules(rules, none_asked)
    assert read_state(tmp_path / "new")["broken"] == []


def test_rows_of_rules_that_another_process_has_replaced_are_not_added(program: Path, folder: Path) -> None:
    with opened(program, folder) as store, opened(program, folder) as other:
        store.use_text_rules(FIRST, none_asked)
        other.use_text_rules(OTHER, two_rows)
        with pytest.raises(StateError, match="opened with another bundle"):
            store.add_example({"text": "late"}, [token_row(1, 2)])
