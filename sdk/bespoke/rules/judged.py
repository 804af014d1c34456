# SPDX-License-Identifier: Apache-2.0
"""The choice of the user's rows that the gate judges: all rows if they are few, else a sample that depends on their lengths alone.

So judging a book takes no longer than judging a few pages. Both adapters are judged on the same rows, and so are two calls that
continue one run. The rule is the same in every language:

- A row of n tokens has n - 1 positions. If all rows together have at most JUDGED_POSITIONS, all are judged.
- Otherwise k = max(1, rows * JUDGED_POSITIONS div positions) rows are drawn, one from each of k strata. Stratum j holds rows
  j * rows div k .. (j + 1) * rows div k - 1. Its row is the (word * size div 2^32)-th, where word is word 0 of Philox counter
  (j, 0, JUDGED, 0) under key 0. The draw does not look at lengths, so the sample has long and short rows in the same proportion.
- A drawn row is left out if it would raise the sum of positions above JUDGED_POSITIONS. The first is kept, however long it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from bespoke.config import JUDGED_POSITIONS
from bespoke.rules.noise import Stream, philox

__all__ = ["JUDGED_POSITIONS", "judged_rows"]


def judged_rows(lengths: Sequence[int]) -> list[int]:
    """The numbers of the rows to judge, ascending. `lengths` are the tokens of each row."""
    positions = sum(lengths) - len(lengths)
    if positions <= JUDGED_POSITIONS:
        return list(range(len(lengths)))

    strata = max(1, len(lengths) * JUDGED_POSITIONS // positions)
    words = philox(0, strata, (0, Stream.JUDGED, 0), 0)[0]
    chosen: list[int] = []
    taken = 0
    for stratum in range(strata):
        first, end = (part * len(lengths) // strata for part in (stratum, stratum + 1))
        row = first + (int(words[stratum]) * (end - first) >> 32)
        if not chosen or taken + lengths[row] - 1 <= JUDGED_POSITIONS:
            chosen.append(row)
            taken += lengths[row] - 1
    return chosen
