# SPDX-License-Identifier: Apache-2.0
"""Adding examples takes work that does not grow with those that are there."""

from __future__ import annotations

import time
from pathlib import Path

from bespoke import PersonalModel
from tests.unit.personal_model.tiny import add_numbers, numbers


def test_the_thousandth_example_takes_the_work_of_the_hundredth(tiny_bundle: Path, tmp_path: Path) -> None:
    """Seconds of the processor, of this thread alone; the fastest of several hundreds, since other work disturbs some."""
    spent = {}
    with PersonalModel.open(tiny_bundle, tmp_path / "alice", engine="torch") as model:
        for first in range(0, 1000, 100):
            began = time.thread_time()
            add_numbers(model, 100, first)
            spent[first] = time.thread_time() - began
    assert min(spent[700], spent[800], spent[900]) < 1.5 * max(spent[100], spent[200], spent[300]), spent


def test_the_split_counts_what_others_added_and_forgot_meanwhile(tiny_bundle: Path, tmp_path: Path) -> None:
    """One example in ten is for validation, whichever process adds it: each one counts the examples of the others too."""
    splits = {}
    for name, handles in (("alone", 1), ("together", 3)):
        models = [PersonalModel.open(tiny_bundle, tmp_path / name) for _ in range(handles)]
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
