# SPDX-License-Identifier: Apache-2.0
"""What protects the numbers that a device sends, and what that is worth.

A device sends a vector v of one number or more. It is clipped in its L2 norm to C and noised before anybody sees it:

    v <- v min(1, C / |v|) + N(0, (sigma C)^2 I)

Of one release the sum over devices changes by at most C if a device is added or removed. So the Gaussian mechanism has
rho = 1 / (2 sigma^2) in zero-concentrated differential privacy (Bun and Steinke 2016, arXiv 1605.02065, proposition 1.6). Releases
add up, and rho means (epsilon, delta) with epsilon = rho + 2 sqrt(rho ln(1/delta)), proposition 1.3. To replace a device's
examples instead of removing it moves the sum by up to 2 C: use sigma/2 here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

__all__ = ["clipped", "epsilon", "protected", "rho_of", "sigma_for"]


def clipped(numbers: np.ndarray, norm: float) -> np.ndarray:
    """The numbers, scaled down where their L2 norm is above `norm`."""
    numbers = np.asarray(numbers, np.float64)
    length = float(np.linalg.norm(numbers))
    return numbers * (norm / length) if length > norm else numbers


def protected(numbers: np.ndarray, norm: float, sigma: float, random: np.random.Generator) -> np.ndarray:
    """The numbers clipped, with noise of sigma times the norm on each."""
    short = clipped(numbers, norm)
    return short + sigma * norm * random.standard_normal(short.shape)


def rho_of(sigmas: Iterable[float]) -> float:
    """What releases with these sigmas cost together in zero-concentrated differential privacy."""
    return sum(1 / (2 * sigma**2) if sigma else math.inf for sigma in sigmas)


def epsilon(rho: float, delta: float) -> float:
    """The epsilon that goes with this delta."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def sigma_for(wanted: float, delta: float, releases: int) -> float:
    """The least sigma by which so many releases stay within an epsilon."""
    root = math.sqrt(math.log(1 / delta) + wanted) - math.sqrt(math.log(1 / delta))  # of rho, from the formula above
    return math.sqrt(releases / 2) / root
