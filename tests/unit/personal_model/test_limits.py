# SPDX-License-Identifier: Apache-2.0
"""A budget that is too small, a disk that is full: a BespokeError, and finished steps are not lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bespoke import PersonalModel
from bespoke.errors import BudgetExceeded, DiskFull
from bespoke.system.footprint import can_measure
from tests.support.checks import few_of
from tests.unit.personal_model.after_training import after, answers
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import METHODS, STEPS, add_numbers

measured = pytest.mark.skipif(not can_measure(), reason="memory is measured through /proc")


def test_a_budget_below_the_estimate_is_refused_before_the_first_step(opened: Open) -> None:
    model = opened(memory_mb=1.0)
    steps: list[int] = []
    with pytest.raises(BudgetExceeded, match="estimated peak") as refused:
        model.train(on_step=lambda step, loss: steps.append(step))
    assert "1.0 MB" in refused.value.expected
    assert "budget" in refused.value.next_step
    assert steps == []
    model.close()
    assert opened(memory_mb=500.0).train(most_steps=1).memory.limit_bytes == 500_000_000


@measured
@pytest.mark.parametrize("method", few_of(METHODS, ("mesp",)))
def test_memory_that_grows_during_a_run_ends_it_in_our_error_and_loses_nothing(opened: Open, method: str) -> None:
    whole = opened("whole").train(method=method)
    model = opened("grows", memory_mb=40.0)
    ballast: list[np.ndarray] = []

    def grow(step: int, loss: float) -> None:
        if step == 5:
            ballast.append(np.ones(300_000_000, np.uint8))

    with pytest.raises(BudgetExceeded):
        model.train(method=method, on_step=grow, commit_seconds=1e6)
    run = model._core.current_run()
    assert run is not None
    assert run.step == 5
    ballast.clear()
    report = model.train()
    assert report.losses == whole.losses[5:]
    assert report.validation_loss == whole.validation_loss
    assert report.stopped_because == "finished"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root and mount, for a small file system of its own")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True).returncode:
        pytest.skip("this system does not let root mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path, leave: int) -> Path:
    """A file that takes all but `leave` bytes."""
    path = folder / "ballast"
    free = os.statvfs(folder)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_bsize - leave)
    return path


@pytest.mark.parametrize("method", few_of(METHODS, ("mesp",)))
def test_a_disk_that_fills_up_during_a_run_loses_nothing_and_says_so(
    opened: Open, tiny_bundle: Path, small_disk: Path, method: str
) -> None:
    straight = opened("straight")
    whole = straight.train(method=method)
    with PersonalModel.open(tiny_bundle, small_disk / "state") as model:
        add_numbers(model)
        steps: list[int] = []

        def fill_up(step: int, loss: float) -> None:
            steps.append(step)
            if step == 4:
                fill(small_disk, 0)

        with pytest.raises(DiskFull) as full:
            model.train(method=method, on_step=fill_up)
        assert "Free some space" in full.value.next_step
        assert "intact" in full.value.next_step
        run = model._core.current_run()
        assert run is not None
        committed = run.step
        assert committed >= 3  # steps 1 to 3 were committed one by one
        with pytest.raises(DiskFull):  # still full: at the latest the next commit, if not the scratch file
            model.train()
        (small_disk / "ballast").unlink()
        report = model.train()
        assert report.stopped_because == "finished"
        assert report.losses == whole.losses[-report.steps :]
        assert report.steps <= STEPS - committed
        assert report.validation_loss == whole.validation_loss
        assert answers(model) == answers(straight)
        assert not list((small_disk / "state").glob("*.partial"))


def test_a_scratch_file_that_does_not_fit_is_an_error_before_the_step(
    opened: Open, tiny_bundle: Path, small_disk: Path
) -> None:
    with PersonalModel.open(tiny_bundle, small_disk / "state") as model:
        add_numbers(model)
        model.train(stop=after(0))
        ballast = fill(small_disk, 40_000)
        steps: list[int] = []
        with pytest.raises(DiskFull, match="scratch"):
            model.train(on_step=lambda step, loss: steps.append(step))
        assert steps == []
        ballast.unlink()
        report = model.train()
        assert report.losses == opened("straight").train().losses
