# SPDX-License-Identifier: Apache-2.0
"""Which numbers of a device count.

A server confirms every number that it will not count as well. Otherwise the device would send it again and again. Numbers
count if they are the first of this device in the round, answer what it was asked, and came while the round was open. Their norm
is bounded: a device clips to C and adds noise with a standard deviation d to each of n numbers. The noise's norm is above
d (sqrt(n) + 12) with a probability below e^-72, so no honest device is refused:

    |v| <= C + d (sqrt(n) + 12)
"""

from __future__ import annotations

import math
from typing import Literal

from bespoke.bundle.federation_record import FederationRecord
from bespoke.rules.round_documents import RoundNumbers
from bespoke_federated.rows import Assignment, RoundRow

__all__ = ["Verdict", "largest_norm", "verdict"]

Verdict = Literal["counts", "late", "again", "not_asked", "other_directions", "too_long"]
DEVIATIONS = 12
ROUNDING = 1e-3  # devices round to a grid


def largest_norm(federation: FederationRecord, count: int) -> float:
    """The largest L2 norm of so many numbers that a device may send."""
    deviation = federation.noise * federation.clip
    return (federation.clip + deviation * (math.sqrt(count) + DEVIATIONS)) * (1 + ROUNDING)


def verdict(
    sent: RoundNumbers, round: RoundRow | None, assignment: Assignment | None, known: bool, federation: FederationRecord
) -> Verdict:
    """What becomes of numbers, which are finite: documents hold no others. `known`: the device sent some of this round before."""
    if known:
        return "again"
    if round is None or assignment is None:
        return "not_asked"
    if (sent.first, len(sent.numbers)) != assignment:
        return "other_directions"
    if math.hypot(*sent.numbers) > largest_norm(federation, len(sent.numbers)):
        return "too_long"
    return "counts" if round.state == "open" else "late"
