# SPDX-License-Identifier: Apache-2.0
"""What a task costs a device, by the accountant of `flwr[dp]`: Renyi differential privacy, from Google's dp-accounting.

Devices noise their own numbers, so each round of a device is one Gaussian mechanism. No sampling amplifies it, because the server
knows who took part. Devices hold rho against their budget, and `bespoke.rules.privacy` makes an epsilon of it by one formula. The
accountant looks for the best order of the same divergence, so its epsilon is lower. Both hold.
"""

from __future__ import annotations

import math

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)

from bespoke.rules.privacy import epsilon, rho_of
from bespoke_federated.metrics import DELTA

__all__ = ["renyi_epsilon", "spent"]


def renyi_epsilon(noise: float, rounds: int, delta: float = DELTA) -> float:
    """The epsilon of a device that took part in so many rounds with this noise."""
    if rounds == 0:
        return 0.0
    if noise == 0:
        return math.inf
    config = PrivacyConfig(delta, 1, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION)
    accountant = RdpAccountant(config)
    accountant.compose(GaussianPrivacyEvent(noise_multiplier=noise, sample_size=1, population_size=1), rounds)
    return accountant.get_epsilon(delta)


def spent(noise: float, rounds: int) -> str:
    """A line on the device that took part in most rounds."""
    of_devices = epsilon(rho_of([noise] * rounds), DELTA)
    most = renyi_epsilon(noise, rounds)
    return f"privacy: {rounds} rounds of one device, epsilon {most:.3g} by Renyi, {of_devices:.3g} by zCDP, delta {DELTA:g}"
