# SPDX-License-Identifier: Apache-2.0
"""Options that methods with two-sided estimates share, and what such a method promises."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bespoke.config import Settings


class ZerothOrderOptions(Settings):
    """Of methods that step along random directions (SPSA, Spall 1992; MeZO, Malladi et al. 2023).

    A method with these options, or with more, that promises `two_sided_loss_difference` does this. Let theta be the pieces that it
    stores, and z_i = b.noise(theta, query=i, distribution). It records g_i = (L(theta + eps z_i) - L(theta - eps z_i)) / (2 eps)
    in order, emits the mean of all L as `loss`, and steps theta <- theta - (learning_rate / queries) sum_i g_i z_i. Golden vectors
    hold it to that. `epsilon` is the size of the step to
    either side: in fp32 a loss carries about 1e-6, so g carries 1e-6 / epsilon.
    """

    epsilon: float = Field(default=1e-3, gt=0)
    queries: int = Field(default=1, ge=1, le=64)
    distribution: Literal["normal", "rademacher"] = "normal"

    @property
    def training_defaults(self) -> dict[str, float]:
        """An estimate is as long as the gradient times the root of the number of weights: too high a rate diverges at once."""
        return {"learning_rate": 5e-5}
