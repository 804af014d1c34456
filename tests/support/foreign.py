# SPDX-License-Identifier: Apache-2.0
"""Signatures of graphs, and others that differ from them: what a hostile or mixed-up bundle may say of a program."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

__all__ = ["DTYPES", "Signature", "Tensors", "foreign"]

DTYPES = ("float32", "float16", "uint8", "int64", "int32")  # their numbers in bespoke.h

Tensor = tuple[tuple[int, ...], str]
Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Signature:
    operands: Tensors
    results: Tensors


def at_one(change: Callable[[Tensor, random.Random], Tensor]) -> Callable[[Tensors, random.Random], Tensors]:
    def changed(tensors: Tensors, numbers: random.Random) -> Tensors:
        place = numbers.randrange(len(tensors))
        return (*tensors[:place], change(tensors[place], numbers), *tensors[place + 1 :])

    return changed


def extent(change: Callable[[int], int]) -> Callable[[Tensors, random.Random], Tensors]:
    def changed(tensor: Tensor, numbers: random.Random) -> Tensor:
        shape, dtype = tensor
        if not shape:
            return (change(1),), dtype
        place = numbers.randrange(len(shape))
        return (*shape[:place], change(shape[place]), *shape[place + 1 :]), dtype

    return at_one(changed)


def swapped(tensors: Tensors, numbers: random.Random) -> Tensors:
    one, two = numbers.randrange(len(tensors)), numbers.randrange(len(tensors))
    order = list(tensors)
    order[one], order[two] = order[two], order[one]
    return tuple(order)


CHANGES: dict[str, Callable[[Tensors, random.Random], Tensors]] = {
    "one row less": extent(lambda size: size - 1),
    "one row more": extent(lambda size: size + 1),
    "64 times as many": extent(lambda size: 64 * size),
    "no rows": extent(lambda size: 0),
    "transposed": at_one(lambda tensor, _: (tensor[0][::-1], tensor[1])),
    "flat": at_one(lambda tensor, _: ((int.__mul__(*tensor[0]) if len(tensor[0]) == 2 else 1,), tensor[1])),
    "another rank": at_one(lambda tensor, _: ((1, *tensor[0]), tensor[1])),
    "another dtype": at_one(lambda tensor, numbers: (tensor[0], numbers.choice(DTYPES))),
    "two swapped": swapped,
    "one left out": lambda tensors, numbers: tensors[:-1],
    "one twice": lambda tensors, numbers: (*tensors, numbers.choice(tensors)),
    "none": lambda tensors, numbers: (),
}


def foreign(own: Signature, all_of: Sequence[Signature], numbers: random.Random) -> tuple[str, Signature]:
    """What was done, and a signature that is not `own`."""
    while True:
        side = numbers.choice(("operands", "results"))
        what = numbers.choice(("another graph's", f"another graph's {side}", *CHANGES))
        if what == "another graph's":
            made = numbers.choice(all_of)
        else:
            other = (
                getattr(numbers.choice(all_of), side)
                if what not in CHANGES
                else CHANGES[what](getattr(own, side), numbers)
            )
            made = replace(own, **{side: other})
            what = what if what not in CHANGES else f"{side}: {what}"
        if made != own:
            return what, made
