# SPDX-License-Identifier: Apache-2.0
"""Which of the user's rows the gate looks at: all while they are few, else a sample that follows from their lengths alone.

So judging takes as long for a book as for a few pages. Both adapters are judged on the same rows, and so are two calls that
continue one run. The rule, the same in every language:

- A row of n tokens has n - 1 positions. Where all rows together have at most JUDGED_POSITIONS, all are judged.
- Else k = max(1, rows * JUDGED_POSITIONS div positions) are drawn, one from each of k strata: stratum j holds rows
  j * rows div k .. (j + 1) * rows div k - 1, and its row is the (word * size div 2^32)-th, where word is word 0 of Philox
  counter (j, 0, JUDGED, 0) under key 0. The draw looks at no length, so long and short rows stand in it as they do among all.
- A drawn row that would take the sum of positions over JUDGED_POSITIONS is left out (the first is kept, however long).
"""

from __future__ import annotations

from collections.abc import Sequence

from bespoke.config import JUDGED_POSITIONS
from bespoke.rules.noise import Stream, philox

__all__ = ["JUDGED_POSITIONS", "judged_rows"]


def judged_rows(lengths: Sequence[int]) -> list[int]:
    """Numbers of the rows to judge, ascending, of rows of so many tokens."""
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
