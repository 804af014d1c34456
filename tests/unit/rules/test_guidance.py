# SPDX-License-Identifier: Apache-2.0
"""Guidance as a cloud makes it, what packing costs, and the guard that stops it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg

from bespoke.rules.guidance import Guard, basis_of, files_of, share_in_span, squares_of, unpacked

SHAPES = {
    "block_00.q_proj.lora_B": (5, 3),
    "block_00.down_proj.lora_B": (4, 3),
    "block_01.q_proj.lora_B": (7, 3),
}
SIZE = 15 + 12 + 21


def gradients(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, SIZE))


def test_a_basis_spans_the_last_gradients() -> None:
    g = gradients(6)
    basis = basis_of(g, 4)
    np.testing.assert_allclose(basis @ basis.T, np.eye(4), atol=1e-12)
    assert ((basis * g[-4:]).sum(1) > 0).all()
    span = scipy.linalg.orth(g[-4:].T)
    np.testing.assert_allclose(basis.T @ basis, span @ span.T, atol=1e-12)


def test_gradients_that_add_nothing_leave_columns_of_zeros() -> None:
    g = gradients(3)
    g[2] = 2 * g[0]
    basis = basis_of(g, 4)
    assert np.linalg.norm(basis, axis=1).round(9).tolist() == [1, 1, 0, 0]
    assert not basis_of(np.zeros((2, SIZE)), 2).any()


def test_devices_read_what_was_packed() -> None:
    basis = basis_of(gradients(4), 4)
    files = files_of(basis, SHAPES)
    assert sorted(files) == [f"guidance.block_{block:02d}.{what}" for block in (0, 1) for what in ("codes", "scales")]
    assert files["guidance.block_00.codes"].shape == (8 + 6, 4)
    read = unpacked(files, SHAPES)
    start = 0
    for shape in SHAPES.values():
        part = slice(start, start + math.prod(shape))
        most = np.abs(basis[:, part]).max()
        np.testing.assert_allclose(read[:, part], basis[:, part], atol=most / 7 * (1 + 2**-4) / 2)
        start = part.stop


@pytest.mark.parametrize("wanted", [0.9, 0.5, 0.1])
def test_the_share_of_gradients_in_the_span_follows_from_the_numbers(wanted: float) -> None:
    random = np.random.default_rng(7)
    basis = basis_of(gradients(4), 4)
    inside, outside = random.standard_normal(4) @ basis, random.standard_normal(SIZE)
    outside -= outside @ basis.T @ basis
    g = math.sqrt(wanted) * inside / np.linalg.norm(inside) + math.sqrt(1 - wanted) * outside / np.linalg.norm(outside)
    noise = random.choice([-1.0, 1.0], (20000, SIZE))
    assert share_in_span((basis @ g).tolist(), (noise @ g).tolist(), 4) == pytest.approx(wanted, abs=0.03)


def test_a_share_of_nothing_is_no_number() -> None:
    assert math.isnan(share_in_span([], [1.0], 4))
    assert math.isnan(share_in_span([1.0], [0.0], 4))


@pytest.mark.parametrize(("wanted", "goes_on"), [(0.5, True), (0.1, False)])
def test_a_guard_compares_devices_with_public_gradients(wanted: float, goes_on: bool) -> None:
    """Public gradients have half of their squares in the span, devices as much or a fifth of that."""
    basis = basis_of(gradients(4), 4)
    outside = gradients(1, seed=8)[0]
    outside -= outside @ basis.T @ basis
    public = basis[0] + outside / np.linalg.norm(outside)
    guard = Guard(columns=4, least=0.7, window=3, trial=5)
    of_columns = [math.sqrt(wanted), 0.0, 0.0, 0.0]
    for _ in range(5):
        assert not guard.judges
        assert not guard.stopped
        guard.add(of_columns, [1.0, -1.0], squares_of(public[None], basis))
    assert guard.judges
    assert guard.stopped is not goes_on
    assert guard.share == pytest.approx(wanted)
    assert guard.public_share == pytest.approx(0.5)
