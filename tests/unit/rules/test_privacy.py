# SPDX-License-Identifier: Apache-2.0
"""Clip and noise of what devices send, and what they are worth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from bespoke.rules.privacy import clipped, epsilon, protected, rho_of, sigma_for

DELTA = 1e-5


def test_a_vector_is_clipped_in_its_norm_and_keeps_its_direction() -> None:
    vector = np.random.default_rng(0).standard_normal(256)
    short = clipped(vector, 2.0)
    assert np.linalg.norm(short) == pytest.approx(2.0)
    np.testing.assert_allclose(short / 2.0, vector / np.linalg.norm(vector))
    np.testing.assert_array_equal(clipped(short, 3.0), short)
    assert clipped(np.array([-5.0]), 1.0).tolist() == [-1.0]
    assert clipped(np.zeros(3), 1.0).tolist() == [0, 0, 0]


def test_each_number_is_noised_by_the_norm_of_the_vector() -> None:
    random = np.random.default_rng(1)
    sent = np.stack([protected(np.full(4, 10.0), 2.0, 3.0, random) for _ in range(4000)])
    np.testing.assert_allclose(sent.mean(0), 1.0, atol=0.4)
    np.testing.assert_allclose(sent.std(0), 6.0, rtol=0.05)
    assert abs(np.corrcoef(sent.T)[0, 1]) < 0.06
    np.testing.assert_array_equal(protected(np.ones(4), 2.0, 0.0, random), np.ones(4))


@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_rho_bounds_the_renyi_divergence_of_one_release(sigma: float, order: float) -> None:
    """D_a(N(1, sigma^2) || N(0, sigma^2)) <= rho a, by numerical integration."""
    p, q = scipy.stats.norm(1, sigma), scipy.stats.norm(0, sigma)
    integral = scipy.integrate.quad(
        lambda x: math.exp(order * p.logpdf(x) + (1 - order) * q.logpdf(x)), -12 * sigma, order + 12 * sigma
    )[0]
    assert math.log(integral) / (order - 1) == pytest.approx(rho_of([sigma]) * order, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.7, 2.0, 10.0])
def test_epsilon_bounds_what_one_release_tells(sigma: float) -> None:
    """Beside the exact trade-off of the Gaussian mechanism (Balle and Wang 2018, theorem 8)."""
    bound = epsilon(rho_of([sigma]), DELTA)
    normal = scipy.stats.norm
    exact = normal.cdf(1 / (2 * sigma) - bound * sigma) - math.exp(bound) * normal.cdf(-1 / (2 * sigma) - bound * sigma)
    assert exact <= DELTA


def test_releases_add_up() -> None:
    assert rho_of([2.0] * 8) == pytest.approx(rho_of([2.0 / math.sqrt(8)]))
    assert rho_of([]) == 0
    assert math.isinf(rho_of([0.0]))


@pytest.mark.parametrize("releases", [1, 100])
def test_a_sigma_for_an_epsilon_gives_it(releases: int) -> None:
    sigma = sigma_for(2.0, DELTA, releases)
    assert epsilon(rho_of([sigma] * releases), DELTA) == pytest.approx(2.0)
