# SPDX-License-Identifier: Apache-2.0
"""The directions of a round, and the step that their numbers make.

    plain    h = z                                  each device's own, or the same for all
    mixed    h = sqrt(a) z + sqrt((1-a) d/m) V w    so that h is as long as z
    probe    h = c' v                               one column of V, several devices for each

With `probe` some devices measure z until the guard has judged (`bespoke.rules.guidance`). Their numbers move nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bespoke.rules.aggregation import Along, step_of
from bespoke_federated.adapter import Adapter
from bespoke_federated.settings import RoundSettings

__all__ = ["Directions", "guided", "plain", "step_along"]


class Directions(NamedTuple):
    """What the devices of a round measure.

    groups:               of directions that differ; the last `watched` of them are of z alone
    each:                 directions of a group
    coefficient:          c of each direction
    guidance_coefficient: c' of each direction
    """

    groups: int
    each: int
    coefficient: float = 1.0
    guidance_coefficient: float = 0.0
    watched: int = 0

    def of_group(self, first: int) -> tuple[float, float]:
        """c and c' of the group with this first direction."""
        if first >= (self.groups - self.watched) * self.each:
            return 1.0, 0.0
        return self.coefficient, self.guidance_coefficient


def plain(settings: RoundSettings) -> Directions:
    """The directions of a round without guidance."""
    return Directions(settings.groups, settings.directions)


def guided(settings: RoundSettings, adapter: Adapter, *, watched: bool) -> Directions:
    """The directions of a round with guidance. `watched`: whether some devices measure z."""
    columns = adapter.steps.columns
    if adapter.steps.probe:
        watchers = settings.watchers if watched else 0
        return Directions(columns + watchers, 1, 0.0, settings.probe_coefficient, watchers)
    mix = settings.mix
    return Directions(
        settings.groups, settings.directions, math.sqrt(mix), math.sqrt((1 - mix) * adapter.size / columns)
    )


def step_along(
    numbers: Mapping[int, Sequence[float]], directions: Directions, settings: RoundSettings, *, is_guided: bool
) -> list[Along]:
    """The step of a round. `numbers`: by direction, those of z that were only watched left out."""
    c, c_guided = directions.coefficient, directions.guidance_coefficient
    rate = settings.guided_rate if is_guided else settings.rate
    # A number along a column is c' v . g, and the step along it is c' too. Else a direction has its share of the rate.
    share = 1 / c_guided**2 if is_guided and not c else 1 / max(1, len(numbers))
    return step_of(numbers, rate * share, coefficient=c, guidance_coefficient=c_guided, combine=settings.combine)
