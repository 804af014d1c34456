# SPDX-License-Identifier: Apache-2.0
"""Short calls of `train` with a method that keeps a journal: slots are written all the same, so no resume replays much of it."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.core import finding
from tests.native.core_lab import tiny_core_bundle
from tests.unit.personal_model.tiny import add_numbers, state_bits

__all__ = ["tiny_core_bundle"]

MOST_REPLAYED = 200  # docs/explanation/state.md


@pytest.fixture(autouse=True)
def built_core(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))


def replayed_by_a_resume(state: Path) -> tuple[int, int]:
    """(step of the newest slot, 0 without; journal rows behind it), by SQLite itself; the slot's file is there and whole."""
    with sqlite3.connect(f"file:{state / 'state.sqlite'}?mode=ro", uri=True) as connection:
        slot = connection.execute("SELECT step, file, sha256 FROM slots ORDER BY id DESC LIMIT 1").fetchone()
        step = 0 if slot is None else slot[0]
        (rows,) = connection.execute("SELECT count(*) FROM journal WHERE step > ?", (step,)).fetchone()
    connection.close()
    if slot is not None:
        assert hashlib.sha256((state / slot[1]).read_bytes()).hexdigest() == slot[2]
    return step, rows


@pytest.mark.parametrize(("calls", "each"), [(3, 70), pytest.param(8, 150, marks=pytest.mark.slow)])
def test_calls_shorter_than_a_slot_write_slots_and_resume_with_few_rows(
    tiny_core_bundle: Path, tmp_path: Path, calls: int, each: int
) -> None:
    ended = {}
    for name, steps in (("whole", [calls * each]), ("parts", [each] * calls)):
        state = tmp_path / name
        losses: list[float] = []
        slots = []
        for number, count in enumerate(steps):
            if number == 0:
                with PersonalModel.open(tiny_core_bundle, state, engine="executorch") as model:
                    add_numbers(model)
                    begun = model.train(run_steps=calls * each + 1, seconds=1e-9, method="mezo", commit_seconds=30.0)
                    assert begun.steps == 0
            with PersonalModel.open(tiny_core_bundle, state, engine="executorch") as model:
                report = model.train(most_steps=count)
            assert (report.steps, report.stopped_because) == (count, "steps_done")
            losses += report.losses
            step, rows = replayed_by_a_resume(state)
            assert step + rows == len(losses)
            assert rows <= MOST_REPLAYED
            slots.append(step)
        ended[name] = (losses, list(state_bits(state).values())[-1])
    assert slots[0] == 0  # so early nothing is due
    assert slots[-1] >= MOST_REPLAYED
    print(f"\n| journal | {calls} calls of {each} steps | slots seen at {sorted(set(slots))} |")
    assert ended["parts"] == ended["whole"]
