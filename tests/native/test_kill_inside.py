# SPDX-License-Identifier: Apache-2.0
"""kill -9 inside training on the core, and inside its gate: of the core and of the process that started it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke.core import finding
from tests.kill.conftest import faults, new_place
from tests.kill.inside import Kills, drawn
from tests.support.bundles import tiny_core_bundle

__all__ = ["faults", "tiny_core_bundle"]

# Each kill needs what an undisturbed run commits, which takes a kill behind every step.
pytestmark = [pytest.mark.xdist_group("core"), pytest.mark.slow]


@pytest.fixture(scope="module")
def kills(native_build: Path, tiny_core_bundle: Path, faults: Path) -> Iterator[Kills]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))
        with new_place() as place, Kills(tiny_core_bundle, "executorch", faults, place) as lab:
            yield lab


@pytest.mark.parametrize("verb", ["train", "train with a journal"])
def test_training_killed_inside_leaves_a_committed_state(kills: Kills, verb: str) -> None:
    drawn(kills, verb, "core")


def test_a_gate_killed_inside_leaves_the_run_before_it_or_the_accepted_adapter(kills: Kills) -> None:
    drawn(kills, "train", "core", gate=True)
