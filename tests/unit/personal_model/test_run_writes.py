# SPDX-License-Identifier: Apache-2.0
"""What a run writes to the files of its state: no more than it may, as its report says, and no more than the estimate."""

from __future__ import annotations

from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.config import MEGABYTE, Training
from bespoke.rules.report import Progress
from bespoke.rules.run_writes import most_written, tensor_file_bytes
from tests.unit.personal_model.after_training import after
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import STEPS, answering

LONG = 120  # steps: more slots than fit


def with_moments(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The adapter, and AdamW's state of it."""
    return {f"{name}{suffix}": shape for name, shape in shapes.items() for suffix in ("", ".m", ".v")}


class Watched:
    """Sizes of all tensor files that were there when a call told something: a commit comes before the next thing told."""

    def __init__(self, model: PersonalModel) -> None:
        self.folder = model._core.state
        self.sizes: dict[str, int] = {}

    def __call__(self, progress: Progress | None = None) -> None:
        self.sizes |= {path.name: path.stat().st_size for path in self.folder.glob("*_*.safetensors")}

    def of(self, kind: str) -> list[int]:
        return [size for name, size in self.sizes.items() if name.startswith(kind)]


def watched(model: PersonalModel, **asked: Any) -> tuple[Watched, Any]:
    watch = Watched(model)
    report = model.train(on_progress=watch, **asked)
    watch()
    return watch, report


@pytest.mark.parametrize("method", ["mesp", "mezo"])
def test_the_report_counts_the_bytes_of_all_files_that_the_run_wrote(opened: Open, method: str) -> None:
    watch, report = watched(opened(), method=method)
    assert report.run_bytes_written == sum(watch.sizes.values()) > 0
    assert len(watch.of("slot")) == (STEPS if method == "mesp" else 0)


def test_bytes_are_counted_over_the_calls_of_a_run_and_from_nothing_for_the_next(alice: PersonalModel) -> None:
    alice.train(stop=after(0))
    first = alice.train(most_steps=3)
    second = alice.train(most_steps=2)
    slot = first.run_bytes_written // 3
    assert (first.run_bytes_written, second.run_bytes_written) == (3 * slot, 5 * slot)
    alice.abandon_run()
    alice.train(stop=after(0))
    assert alice.train(most_steps=1).run_bytes_written == slot


@pytest.mark.slow
def test_a_run_writes_no_more_than_it_may_and_ends_with_the_same_bits(opened: Open) -> None:
    whole, free = watched(opened("free"), run_steps=LONG, write_mb_per_run=None)
    limit = free.run_bytes_written // 4
    few, held = watched(opened("held"), run_steps=LONG, write_mb_per_run=limit / MEGABYTE)
    assert len(whole.of("slot")) == LONG
    assert limit / 2 < held.run_bytes_written <= limit
    assert len(few.of("slot")) < LONG / 3
    assert (held.losses, held.validation_loss, held.best_step) == (free.losses, free.validation_loss, free.best_step)


def test_what_is_estimated_is_what_runs_write_at_most(opened: Open) -> None:
    watch, report = watched(opened())
    shapes = {name: array.shape for name, array in answering(opened("shapes")).items()}
    adapter, slot = tensor_file_bytes(shapes), tensor_file_bytes(with_moments(shapes))
    assert {slot} == set(watch.of("slot"))
    assert set(watch.of("accepted")) == {adapter}

    def most(write_mb: float | None, *, replayable: bool = False, steps: int = 300) -> int:
        training = Training(steps=steps, write_mb_per_run=write_mb)
        return most_written(30 * MEGABYTE, 10 * MEGABYTE, training, replayable=replayable) // MEGABYTE

    assert report.run_bytes_written <= most_written(slot, adapter, Training(steps=STEPS), replayable=False)
    adapters = 14 * 10  # ten judgements, three cuts and the accepted one
    assert most(None) == 300 * 30 + adapters
    assert most(300) == 300
    assert most(50) == 30 + adapters  # what is written in any case
    assert most(300, steps=2) == 2 * 30 + adapters
    assert most(50, replayable=True, steps=500) == 2 * 30 + adapters
