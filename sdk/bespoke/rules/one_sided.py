# SPDX-License-Identifier: Apache-2.0
"""Which devices a server leaves out of a round because their numbers always lie at an end.

Some devices may always send the least or the largest number that is let in. They move a median and a trimmed mean the same way in
each round. One round does not show whether a device lies or its words are unlike those of others. Many rounds do. The numbers of an
honest device lie in the outer half of a direction's numbers about every second time, because each round has other directions.

A device that lies now and then is not found. It does less harm.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

__all__ = ["REMEMBERED", "always_outer", "outer_shares"]

OUTER = 0.5  # beyond so many of the numbers, less those on the other side: the lowest quarter and the highest
COMPARED = 4  # numbers of a direction, with fewer none is at an end
REMEMBERED = 40  # rounds of a device
LEAST_ROUNDS = 20  # before a device is judged
ALWAYS = 0.9  # share of outer numbers


def outer_shares(numbers: Sequence[tuple[int, Sequence[float]]]) -> list[float | None]:
    """For each device of a round the share of its numbers that lie in the lowest or the highest quarter of their direction.

    `numbers`: first direction and numbers of each device. None: its directions have too few numbers. Equal numbers all lie in the
    middle of the places that they take.
    """
    columns: dict[int, list[float]] = {}
    for first, found in numbers:
        for direction, number in enumerate(found, first):
            columns.setdefault(direction, []).append(number)
    for column in columns.values():
        column.sort()
    return [_share([(number, columns[at]) for at, number in enumerate(found, first)]) for first, found in numbers]


def always_outer(shares: Sequence[float]) -> bool:
    """Whether a device is left out, by its `outer_shares` of at most the last REMEMBERED rounds."""
    return len(shares) >= LEAST_ROUNDS and sum(shares) >= ALWAYS * len(shares)


def _share(numbers: Sequence[tuple[float, Sequence[float]]]) -> float | None:
    outer = [_is_outer(number, column) for number, column in numbers if len(column) >= COMPARED]
    return sum(outer) / len(outer) if outer else None


def _is_outer(number: float, column: Sequence[float]) -> bool:
    """Whether a number lies at an end of a sorted column."""
    below, above = bisect_left(column, number), len(column) - bisect_right(column, number)
    return abs(below - above) > OUTER * len(column)
