# SPDX-License-Identifier: Apache-2.0
"""Settings of a server: how rounds go, and what a client may ask of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bespoke.config import Settings
from bespoke.errors import ConfigError
from bespoke.rules.aggregation import Combine
from bespoke.rules.round_documents import MAX_DIRECTIONS, MAX_ROUND

__all__ = ["Limits", "RoundSettings", "Whose"]

Whose = Literal["own", "shared"]


class RoundSettings(Settings):
    """How rounds are opened, measured and combined.

    Whose directions: with `own` each device of a round measures directions that no other one measures. With `shared` all measure
    the same ones, so that a median or a trimmed mean can leave out what few of them say.
    """

    rounds: int = Field(
        default=300, ge=1, le=MAX_ROUND, description="rounds of the task; devices are done after the last"
    )
    devices: int = Field(default=16, ge=1, le=1_000_000, description="numbers that end a round")
    least_devices: int = Field(default=4, ge=1, description="numbers without which the deadline does not end a round")
    directions: int = Field(default=1, ge=1, le=MAX_DIRECTIONS, description="directions that a device measures")
    whose: Whose = Field(default="own", description="whether devices have directions of their own")
    rate: float = Field(default=0.003, gt=0, le=1e6, description="step for a number of 1, before it is shared")
    combine: Combine = Field(
        default="mean",
        description="what is made of the numbers of one direction; but for a mean, without devices that always lie at an end",
    )
    deadline_seconds: float = Field(default=86_400.0, gt=0, le=1e8)
    guidance: bool = Field(default=False, description="whether rounds wait for guidance of the cloud")
    guidance_wait_seconds: float = Field(
        default=3_600.0, ge=0, le=1e8, description="after which a round goes on without guidance"
    )
    guided_rate: float = Field(default=0.0002, gt=0, le=1e6, description="step for a number of 1, in guided rounds")
    mix: float = Field(default=0.5, gt=0, lt=1, description="share of z in a direction; not with probe")
    probe_coefficient: float = Field(
        default=100.0,
        gt=0,
        le=1e6,
        description="c' of a column that is probed; times epsilon it is how far a device goes",
    )
    watchers: int = Field(
        default=0, ge=0, le=MAX_DIRECTIONS, description="devices that measure z, with probe, until the guard has judged"
    )
    guard_rounds: int = Field(default=20, ge=1, description="guided rounds after which the guard judges")
    guard_least: float = Field(
        default=0.7, ge=0, description="of the share of public gradients in the span, below which guidance stops"
    )
    half_every: int = Field(default=10, ge=0, description="rounds after which devices round to float16; 0: never")
    retry_seconds: float = Field(default=3_600.0, ge=0, le=1e8, description="wait of a device that has nothing to do")

    def groups_of(self, servers: int = 1) -> int:
        """Groups of directions that differ, in a round that so many servers share."""
        return servers * self.devices if self.whose == "own" else 1

    def is_half(self, number: int) -> bool:
        """Whether devices round the adapter to float16 after this round."""
        return bool(self.half_every) and number % self.half_every == 0

    def check(self) -> None:
        """Raises ConfigError for settings that contradict each other."""
        if self.least_devices > self.devices:
            raise _refused("least_devices", str(self.least_devices), f"at most {self.devices}, the devices of a round")
        directions = self.groups_of() * self.directions
        if directions > MAX_DIRECTIONS:
            got = f"{directions} directions in a round"
            raise _refused("devices, directions", got, f"at most {MAX_DIRECTIONS}")
        if self.whose == "own" and self.combine != "mean":
            raise _refused("combine", f"{self.combine} of one number", "mean, where devices have their own directions")


class Limits(Settings):
    """What clients may ask for."""

    body_bytes: int = Field(default=2**20, ge=1024, description="largest body of a request")
    device_requests: int = Field(default=120, ge=1, description="requests a minute of one device")
    address_requests: int = Field(default=600, ge=1, description="requests a minute from one address")
    devices: int = Field(default=100_000, ge=1, description="devices that may enrol")


def _refused(subject: str, got: str, expected: str) -> ConfigError:
    return ConfigError(f"setting {subject}", got=got, expected=expected, next_step="Change the settings of the rounds")
