# SPDX-License-Identifier: Apache-2.0
"""A model in the hands of several threads: what runs while another call does, what closing waits for, what is let go."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.errors import Busy, StateError
from tests.unit.personal_model.tiny import STEPS, add_numbers, numbers, tiny_bundle, tiny_folder

__all__ = ["tiny_bundle", "tiny_folder"]

pytestmark = pytest.mark.xdist_group("tiny")


@pytest.fixture
def model(tiny_bundle: Path, tmp_path: Path) -> PersonalModel:
    model = PersonalModel.open(tiny_bundle, tmp_path / "state", engine="torch")
    add_numbers(model)
    return model


class Training:
    """A call of `train` on a thread of its own, held at its first step until `go_on`."""

    def __init__(self, model: PersonalModel) -> None:
        self._at_a_step, self._go_on = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self.report = self._pool.submit(model.train, on_step=self._hold)
        assert self._at_a_step.wait(60)

    def _hold(self, step: int, loss: float) -> None:
        self._at_a_step.set()
        assert self._go_on.wait(60)

    def go_on(self) -> None:
        self._go_on.set()


def test_the_verbs_of_the_store_run_while_a_call_computes_and_another_that_computes_is_refused(
    model: PersonalModel,
) -> None:
    training = Training(model)
    assert model.examples.add(numbers(50), id="meanwhile").created
    assert len(model.examples.list()) == len(model.examples) == 13
    assert model.versions() == []
    with pytest.raises(Busy):
        model.evaluate()
    training.go_on()
    assert training.report.result().steps == STEPS
    model.close()


def test_closing_waits_for_the_call_that_runs_and_refuses_those_after_it(model: PersonalModel) -> None:
    training = Training(model)
    closing = threading.Thread(target=model.close)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive()
    training.go_on()
    assert training.report.result().stopped_because == "finished"
    closing.join(60)
    assert not closing.is_alive()
    model.close()  # once more does nothing
    for call in (model.versions, model.rollback, model.train, model.evaluate, lambda: len(model.examples)):
        with pytest.raises(StateError, match="a model that was closed"):
            call()  # type: ignore[operator]


def test_a_model_that_is_dropped_lets_go_of_its_files(tiny_bundle: Path, tmp_path: Path) -> None:
    model = PersonalModel.open(tiny_bundle, tmp_path / "dropped")
    assert held(tmp_path / "dropped") > 0
    del model
    gc.collect()
    assert held(tmp_path / "dropped") == 0


def held(folder: Path) -> int:
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("the system does not list a process's files")
    return sum(os.path.realpath(link).startswith(str(folder.resolve())) for link in descriptors.iterdir())


def test_many_threads_add_and_each_example_is_there_once(model: PersonalModel) -> None:
    with ThreadPoolExecutor(8) as pool:
        added = list(
            pool.map(lambda number: model.examples.add(numbers(number), id=f"same-{number % 50}"), [*range(50)] * 2)
        )
    assert sum(one.created for one in added) == 50
    assert len(model.examples) == 62
    model.close()
