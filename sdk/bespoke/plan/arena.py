# SPDX-License-Identifier: Apache-2.0
"""Gives every value of a section an offset in ONE arena, or in the mapped scratch file.

Values that wait for the backward pass and values of the moment are kept in two regions, because the first come and go as on
a stack over the whole step and would otherwise leave holes between the second.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping, Sequence

from bespoke.plan.draft import DraftValue
from bespoke.plan.instructions import Arena, Scratch
from bespoke.plan.liveness import Interval

ALIGNMENT = 64  # bytes: a cache line, and what vector loads of every target want


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Region:
    """Best fit over free blocks, in order of time."""

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = []  # (offset, size), by offset
        self.size = 0

    def take(self, size: int) -> int:
        fits = [(extent, offset) for offset, extent in self.free if extent >= size]
        if fits:
            extent, offset = min(fits)
            self.free.remove((offset, extent))
            if extent > size:
                insort(self.free, (offset + size, extent - size))
            return offset
        if self.free and sum(self.free[-1]) == self.size:  # grow the block that ends the region
            offset, _ = self.free.pop()
        else:
            offset = self.size
        self.size = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        insort(self.free, (offset, size))
        for start, extent in self.free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + extent)
            else:
                merged.append((start, extent))
        self.free = merged


def place(
    live: Mapping[int, Interval], values: Sequence[DraftValue], waiting: Collection[int], spilled: Collection[int]
) -> tuple[dict[int, Arena | Scratch], int, int]:
    """Places, arena bytes and scratch bytes. `waiting` are the checkpoints, `spilled` those that go to the scratch file."""
    moment, kept, scratch = _Region(), _Region(), _Region()

    def region(value: int) -> _Region:
        return scratch if value in spilled else kept if value in waiting else moment

    events: list[tuple[int, int, int]] = []
    for value, interval in live.items():
        events.append((interval.birth, 1, value))
        events.append((interval.death, 0, value))  # `free` is an instruction of its own, so nothing is born there
    offsets: dict[int, int] = {}
    for _, born, value in sorted(events):
        size = max(ALIGNMENT, aligned(values[value].nbytes))
        if born:
            offsets[value] = region(value).take(size)
        else:
            region(value).give(offsets[value], size)
    places: dict[int, Arena | Scratch] = {}
    for value, offset in offsets.items():
        if value in spilled:
            places[value] = Scratch(kind="scratch", offset=offset)
        else:
            places[value] = Arena(kind="arena", offset=offset + (moment.size if value in waiting else 0))
    return places, moment.size + kept.size, scratch.size
