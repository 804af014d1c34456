# SPDX-License-Identifier: Apache-2.0
"""Adding examples takes work that does not grow with those that are there."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from tests.unit.personal_model.tiny import add_numbers, numbers

_UNIT = 10  # instructions of SQLite's virtual machine


class Work:
    """What SQLite does in this process: counted in instructions of its virtual machine, as it calls back after so many."""

    def __init__(self) -> None:
        self.done = 0

    def count(self) -> int:
        self.done += _UNIT
        return 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    counted, connect = Work(), sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_progress_handler(counted.count, _UNIT)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connected)
    return counted


def test_the_thousandth_example_takes_the_work_of_the_hundredth(tiny_bundle: Path, tmp_path: Path, work: Work) -> None:
    spent = {}
    with PersonalModel.open(tiny_bundle, tmp_path / "alice", runtime="torch") as model:
        for first in range(0, 1000, 100):
            before = work.done
            add_numbers(model, 100, first)
            spent[first] = work.done - before
        assert spent[900] < 1.2 * spent[100], spent


def test_the_split_counts_what_others_added_and_forgot_meanwhile(tiny_bundle: Path, tmp_path: Path) -> None:
    """One example in ten is for validation, whichever process adds it: each one counts the examples of the others too."""
    splits = {}
    for name, handles in (("alone", 1), ("together", 3)):
        models = [PersonalModel.open(tiny_bundle, tmp_path / name, runtime="torch") for _ in range(handles)]
        found = []
        for index in range(120):
            model = models[index % handles]
            found.append(model.examples.add(numbers(index), id=f"number-{index}").split)
            if index % 7 == 6:
                models[(index + 1) % handles].examples.forget(f"number-{index - 3}")
        splits[name] = found
        for model in models:
            model.close()
    assert splits["alone"] == splits["together"]
    assert 12 <= splits["alone"].count("validation") <= 30
