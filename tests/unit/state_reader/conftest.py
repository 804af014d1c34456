# SPDX-License-Identifier: Apache-2.0
"""Real states of the tiny bundle, trained by the core."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.core import finding
from tests.support.bundles import made_once, tiny_core_bundle  # noqa: F401
from tests.unit.personal_model.tiny import add_numbers

SLOT_STEP = 200  # slot of a replayable method, whose run goes on after it


@pytest.fixture(scope="session")
def real_states(tiny_core_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """Folder of two states with twelve examples and an accepted adapter, from which an unfinished run started: `mesp` with two
    slots, `mezo` with a journal that goes on behind its slot. Copy them, do not change them.
    """
    if finding.find().path is None:
        pytest.skip("the device core is not installed")

    def make(folder: Path) -> None:
        for method, steps in (("mesp", 5), ("mezo", SLOT_STEP + 3)):
            with PersonalModel.open(tiny_core_bundle, folder / method, engine="executorch") as model:
                add_numbers(model)
                assert model.train(run_steps=6, method="mesp").accepted
                model.train(run_steps=2 * SLOT_STEP, seconds=1e-9, method=method, seed=3)  # over before the first step
                assert model.train(most_steps=steps).stopped_because == "steps_done"

    return made_once(tmp_path_factory, "real_states", make)
