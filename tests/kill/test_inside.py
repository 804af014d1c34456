# SPDX-License-Identifier: Apache-2.0
"""kill -9 inside what Python adds to the core: an export, training and the gate with torch as the engine, at calls drawn over all
writes, flushes, renames and removals. tests/native does the same to each verb of the core."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.conftest import new_place
from tests.kill.inside import Kills, drawn
from tests.support.checks import few_of
from tests.unit.personal_model.tiny import tiny_bundle, tiny_folder

__all__ = ["tiny_bundle", "tiny_folder"]


pytestmark = pytest.mark.xdist_group("tiny")


@pytest.fixture(scope="module")
def kills(tiny_bundle: Path, faults: Path) -> Iterator[Kills]:
    with new_place() as place, Kills(tiny_bundle, "torch", faults, place) as lab:
        yield lab


@pytest.mark.parametrize("verb", few_of(("export", "train"), ("export",)))
def test_a_verb_killed_inside_leaves_the_old_or_the_new_state(kills: Kills, verb: str) -> None:
    drawn(kills, verb, "torch")


@pytest.mark.slow
def test_a_gate_killed_inside_leaves_the_run_before_it_or_the_accepted_adapter(kills: Kills) -> None:
    drawn(kills, "train", "torch", gate=True)


@pytest.mark.slow
def test_a_verb_that_commits_in_two_parts_is_caught(kills: Kills) -> None:
    with pytest.raises(AssertionError, match="between old and new"):
        kills.draw("add two", 100, seed=1)
