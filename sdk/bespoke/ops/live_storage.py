# SPDX-License-Identifier: Apache-2.0
"""Peak memory of a graph whose operators run one after another."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

__all__ = ["VIEWS", "Step", "largest_live"]

VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default",
        "_unsafe_view.default",
        "t.default",
        "transpose.int",
        "permute.default",
        "slice.Tensor",
        "select.int",
        "expand.default",
        "unsqueeze.default",
        "squeeze.dim",
        "split.Tensor",
        "split_with_sizes.default",
    )
)
"""Operators whose results share the storage of their first argument."""


@dataclass(frozen=True, slots=True)
class Step:
    """An operator of a graph: the storage that it writes, and the storages that it reads.

    A view writes nothing: its `nbytes` is 0, its `storage` is that of its operand.
    """

    storage: Hashable
    nbytes: int
    reads: Sequence[Hashable]
    scratch: int


def largest_live(steps: Sequence[Step], elsewhere: Collection[Hashable]) -> int:
    """Largest sum of the live storages and the running operator's scratch. Storages in `elsewhere` do not count."""
    last: dict[Hashable, int] = {}
    sizes: dict[Hashable, int] = {}
    for position, step in enumerate(steps):
        sizes.setdefault(step.storage, 0 if step.storage in elsewhere else step.nbytes)
        for storage in (step.storage, *step.reads):
            last[storage] = position

    ends: dict[int, list[Hashable]] = {}
    for storage, position in last.items():
        ends.setdefault(position, []).append(storage)

    live = peak = 0
    begun: set[Hashable] = set()
    for position, step in enumerate(steps):
        if step.storage not in begun:
            begun.add(step.storage)
            live += sizes[step.storage]
        peak = max(peak, live + step.scratch)
        live -= sum(sizes.get(storage, 0) for storage in ends.get(position, ()))
    return peak
