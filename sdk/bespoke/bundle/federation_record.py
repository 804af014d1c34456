# SPDX-License-Identifier: Apache-2.0
"""The manifest's record of what the users of an app learn together."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import Field

from bespoke.bundle.fields import MAX_COUNT, Name
from bespoke.config import Settings

__all__ = ["FederationRecord", "seed_of"]


class FederationRecord(Settings):
    """Federated learning: who leads it, which method measures, and what a device may send."""

    task: Name = Field(description="name of what is learned; consent and budget are kept by this name")
    server_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="ed25519 key that must have signed what the server sends, in hexadecimal"
    )
    method: Name = Field(description="method whose plans measure and take the steps of a round")
    seed: int = Field(ge=0, le=MAX_COUNT, description="seed of the noise of all rounds")
    clip: float = Field(gt=0, description="largest L2 norm of the numbers that a device sends of a round")
    noise: float = Field(ge=0, description="standard deviation of the noise in each number, in units of `clip`")
    budget: float | None = Field(
        gt=0,
        description="most that a device spends in its life, as rho of zero-concentrated differential privacy; "
        "a round costs 1 / (2 noise^2); null: no limit",
    )


def seed_of(task: str) -> int:
    """The seed of a task's noise: 48 bits of the sha256 of its name."""
    return int.from_bytes(hashlib.sha256(task.encode()).digest()[:6], "big")
