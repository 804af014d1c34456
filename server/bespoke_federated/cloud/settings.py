# SPDX-License-Identifier: Apache-2.0
"""Settings of a cloud: those of rounds, and how its edges are asked."""

from __future__ import annotations

from pydantic import Field

from bespoke.errors import ConfigError
from bespoke.rules.round_documents import MAX_DIRECTIONS
from bespoke_federated.settings import RoundSettings

__all__ = ["CloudSettings"]


class CloudSettings(RoundSettings):
    """How a cloud leads.

    `devices` and `watchers` are those of each edge in a round, and `least_devices` those of all edges together. An edge that does
    not answer when the deadline passes is left out of the round.
    """

    least_edges: int = Field(default=1, ge=1, le=MAX_DIRECTIONS, description="edges without which no round opens")
    poll_seconds: float = Field(default=20.0, gt=0, le=3600, description="for which an edge's app waits for numbers")

    def groups_of(self, servers: int = 1) -> int:
        """Groups of directions of a round of so many edges. Raises ConfigError where they are too many."""
        groups = super().groups_of(servers)
        if groups * self.directions > MAX_DIRECTIONS:
            raise ConfigError(
                "settings devices, directions",
                got=f"{groups * self.directions} directions in a round of {servers} edges",
                expected=f"at most {MAX_DIRECTIONS}",
                next_step="Change the settings of the cloud",
            )
        return groups

    def check(self) -> None:
        """Raises ConfigError for settings that contradict each other."""
        most = self.devices * self.least_edges
        if self.least_devices > most:
            raise ConfigError(
                "setting least_devices",
                got=str(self.least_devices),
                expected=f"at most {most}, the devices of the fewest edges",
                next_step="Change the settings of the cloud",
            )
        RoundSettings.check(self.model_copy(update={"least_devices": 1}))
        self.groups_of(self.least_edges)
