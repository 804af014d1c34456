# SPDX-License-Identifier: Apache-2.0
"""The directions of a round, and the step that their numbers make.

    plain    h = z                                  each device's own, or the same for all
    mixed    h = sqrt(a) z + sqrt((1-a) d/m) V w    so that h is as long as z
    probe    h = c' v                               one column of V, several devices for each

With `probe` some devices measure z until the guard has judged (`bespoke.rules.guidance`). Their numbers move nothing.

Where a cloud's edges share a round, each has a span of its groups. All measure the same columns. Of z no direction is measured by
two edges, unless the settings say that all directions are shared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bespoke.rules.aggregation import Along, step_of
from bespoke.rules.round_documents import MAX_DIRECTIONS
from bespoke_federated.adapter import Adapter
from bespoke_federated.settings import RoundSettings

__all__ = ["Directions", "Span", "guided", "plain", "spans", "step_along"]


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

    @property
    def moving(self) -> int:
        """Groups whose numbers move the adapter."""
        return self.groups - self.watched

    def of_group(self, first: int) -> tuple[float, float]:
        """c and c' of the group with this first direction."""
        if first >= self.moving * self.each:
            return 1.0, 0.0
        return self.coefficient, self.guidance_coefficient


class Span(NamedTuple):
    """The groups of a round that one server's devices measure: some that move the adapter, and some that are watched."""

    first_group: int
    groups: int
    first_watched: int = 0
    watched: int = 0

    @property
    def ranges(self) -> tuple[range, range]:
        """Its groups by number: those that move, then those that are watched."""
        watched = range(self.first_watched, self.first_watched + self.watched)
        return range(self.first_group, self.first_group + self.groups), watched

    def is_of(self, measured: Directions) -> bool:
        """Whether a round has these groups."""
        moving, watched = self.ranges
        return moving.stop <= measured.moving and (
            not watched or measured.moving <= watched.start < watched.stop <= measured.groups
        )

    def holds(self, first: int, count: int, each: int) -> bool:
        """Whether so many directions from this one on lie in it, with so many to a group."""
        return any(of.start * each <= first and first + count <= of.stop * each for of in self.ranges)


def plain(settings: RoundSettings, servers: int = 1) -> Directions:
    """The directions of a round without guidance that so many servers share."""
    return Directions(settings.groups_of(servers), settings.directions)


def guided(settings: RoundSettings, adapter: Adapter, *, watched: bool, servers: int = 1) -> Directions:
    """The directions of a round with guidance that so many servers share. `watched`: whether some devices measure z."""
    columns, mix = adapter.steps.columns, settings.mix
    if adapter.steps.probe:
        most = max(0, MAX_DIRECTIONS - columns) // servers
        watchers = min(settings.watchers, most) * servers if watched else 0
        return Directions(columns + watchers, 1, 0.0, settings.probe_coefficient, watchers)
    along_columns = math.sqrt((1 - mix) * adapter.size / columns)
    return plain(settings, servers)._replace(coefficient=math.sqrt(mix), guidance_coefficient=along_columns)


def spans(measured: Directions, settings: RoundSettings, servers: int = 1) -> list[Span]:
    """The groups of each server of a round."""
    is_shared = settings.whose == "shared" or not measured.coefficient  # columns alone: they are the same for all
    own = measured.moving if is_shared else measured.moving // servers
    watched = measured.watched // servers
    return [
        Span(0 if is_shared else place * own, own, measured.moving + place * watched, watched)
        for place in range(servers)
    ]


def step_along(
    numbers: Mapping[int, Sequence[float]], directions: Directions, settings: RoundSettings, *, is_guided: bool
) -> list[Along]:
    """The step of a round. `numbers`: by direction, those of z that were only watched left out."""
    c, c_guided = directions.coefficient, directions.guidance_coefficient
    rate = settings.guided_rate if is_guided else settings.rate
    # A number along a column is c' v . g, and the step along it is c' too. Else a direction has its share of the rate.
    share = 1 / c_guided**2 if is_guided and not c else 1 / max(1, len(numbers))
    return step_of(numbers, rate * share, coefficient=c, guidance_coefficient=c_guided, combine=settings.combine)
