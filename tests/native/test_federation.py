# SPDX-License-Identifier: Apache-2.0
"""Rounds of federated learning in the core, beside the reference: the same numbers, and adapters of the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.rules.federation import Direction
from tests.native.conftest import compile_core
from tests.native.federation_devices import exact
from tests.support import federation as f

__all__ = ["exact"]


@pytest.fixture(scope="module")
def lab() -> list[str]:
    return [str(compile_core("core") / "tests" / "federation_lab")]


@pytest.fixture
def bundle(exact: Path) -> Path:
    return exact


def test_two_hundred_rounds_come_to_the_same_bits(lab: list[str], bundle: Path, tmp_path: Path) -> None:
    files = f.guidance(bundle)
    folder = f.written(files, tmp_path / "guidance")
    there = f.answers(lab, bundle, "zgr", tmp_path / "scratch", f.replays(f.ROUNDS, f.DIRECTIONS, folder))
    assert len(set(there)) == f.ROUNDS
    assert there[-1] == f.replay(f.reference(bundle, "zgr"), f.ROUNDS, f.DIRECTIONS, files)


def test_a_step_of_projections_is_a_step_without_guidance(lab: list[str], bundle: Path, tmp_path: Path) -> None:
    """A device with either method follows the same round."""
    folder = f.written({}, tmp_path / "guidance")
    there = [
        f.answers(lab, bundle, method, tmp_path / method, f.replays(3, 5, folder))[-1] for method in ("zgr", "mesp")
    ]
    assert there[0] == there[1] == f.replay(f.reference(bundle, "mesp"), 3, 5, {})


def test_what_is_measured_is_what_the_reference_measures(lab: list[str], bundle: Path, tmp_path: Path) -> None:
    files = f.guidance(bundle)
    folder = f.written(files, tmp_path / "guidance")
    batches = [f.batch(0), f.batch(1)]
    ways: list[tuple[int, tuple[float, float], bool]] = [
        (0, (1.0, 0.0), False),
        (3, (0.7, 0.05), True),
        (9, (0.0, 0.1), True),
    ]
    actions = f.replays(2, 3, folder)
    for number, c, guided in ways:
        at = {"seed": f.SEED, "round": 5, "along": (number, *c)}
        actions.append(
            {"do": "measure", "batches": [f.as_json(one) for one in batches], **at} | _guidance(folder, guided)
        )
    found = f.answers(lab, bundle, "zgr", tmp_path / "scratch", actions)[-len(ways) :]

    machine = f.reference(bundle, "zgr")
    f.replay(machine, 2, 3, files)
    for (number, c, guided), numbers in zip(ways, found, strict=True):
        expected = machine.measure(batches, Direction(f.SEED, 5, number, *c, received=files if guided else {}))
        assert len(expected) == 1
        np.testing.assert_allclose(numbers, expected, rtol=0, atol=2e-6 / 1e-3)  # two losses in fp32, over epsilon


def test_projections_are_those_of_the_reference(lab: list[str], bundle: Path, tmp_path: Path) -> None:
    batches = [f.batch(2), f.batch(3), f.batch(4)]
    at: dict[str, Any] = {"seed": f.SEED, "round": 1}
    actions: list[dict[str, Any]] = f.replays(2, 3, f.written({}, tmp_path / "guidance"))
    actions.append({"do": "measure", "batches": [f.as_json(one) for one in batches], "along": (0, 1.0, 0.0), **at})
    actions += [{"do": "project", "along": (number, 1.0, 0.0), **at} for number in range(8)]
    found = f.answers(lab, bundle, "mesp", tmp_path / "scratch", actions)[2:]

    machine = f.reference(bundle, "mesp")
    f.replay(machine, 2, 3, {})
    assert machine.projects
    assert machine.measure(batches, Direction(f.SEED, 1, 0)) == found[0] == []
    expected = [machine.project(Direction(f.SEED, 1, number)) for number in range(8)]
    assert len({tuple(one) for one in expected}) == 8
    scale = max(abs(one[0]) for one in expected)
    np.testing.assert_allclose(found[1:], expected, rtol=0, atol=1e-5 * scale)


def test_a_direction_beyond_the_noise_is_refused(lab: list[str], bundle: Path, tmp_path: Path) -> None:
    action = {"do": "measure", "batches": [f.as_json(f.batch())], "seed": 1, "round": 1}
    with pytest.raises(AssertionError, match="direction 2147483648"):
        f.answers(lab, bundle, "zgr", tmp_path / "scratch", [{**action, "along": (2**31, 1.0, 0.0)}])


def _guidance(folder: Path, guided: bool) -> dict[str, str]:
    return {"guidance": str(folder)} if guided else {}
