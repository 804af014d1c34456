# SPDX-License-Identifier: Apache-2.0
"""Real states of the tiny bundle, trained by the torch runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.bundles import made_once
from tests.unit.personal_model.tiny import add_numbers, tiny_bundle, tiny_folder  # noqa: F401

SLOT_STEP = 200  # of a replayable method, whose run goes on behind it


@pytest.fixture(scope="session")
def real_states(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """Folder of two states with twelve examples and an accepted adapter, from which an unfinished run started: `mesp` with two
    slots, `mezo` with a journal that goes on behind its slot. Copy them, do not change them.
    """

    def make(folder: Path) -> None:
        for method, steps in (("mesp", 5), ("mezo", SLOT_STEP + 3)):
            with PersonalModel.open(tiny_bundle, folder / method, runtime="torch") as model:
                add_numbers(model)
                assert model.train(6, method="mesp").accepted
                done: list[int] = []
                # Commits one by one, as they are timed, and stops before the end of the run.
                model.train(
                    method=method, seed=3, stop=lambda done=done, steps=steps: len(done) >= steps,
                    on_step=lambda step, loss, done=done: done.append(step), steps=None if method == "mesp" else 2 * SLOT_STEP,
                )  # fmt: skip

    return made_once(tmp_path_factory, "real_states", make)
