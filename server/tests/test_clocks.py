# SPDX-License-Identifier: Apache-2.0
"""Clocks that jump: a running server does not care, and a restarted one loses or gains a deadline at most."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from federation_client import ManualClock, Served

Serve = Callable[..., Served]
YEAR = 365 * 86_400.0


def ended(served: Served) -> bool:
    served.edge.rounds.advance()
    return served.edge.store.last_ended() is not None


def with_two_of_three(served: Served) -> None:
    for _ in range(2):
        served.enrolled().take_part(1.0)


@pytest.mark.parametrize("jump", [-YEAR, YEAR])
def test_a_jump_does_not_move_a_deadline(served: Served, clock: ManualClock, jump: float) -> None:
    with_two_of_three(served)
    clock.date += jump
    assert not ended(served)
    clock.passed += 99
    assert not ended(served)
    clock.passed += 2
    assert ended(served)


@pytest.mark.parametrize(("jump", "left"), [(-YEAR, 100.0), (0.0, 40.0), (YEAR, 0.0)])
def test_a_jump_across_a_restart_costs_a_deadline_at_most(
    serve: Serve, clock: ManualClock, jump: float, left: float
) -> None:
    served = serve()
    with_two_of_three(served)
    clock.wait(60)
    served.close()
    clock.date += jump
    clock.passed = 5.0  # another machine
    served = serve()
    if left:
        clock.passed += left - 1
        assert not ended(served)
        clock.passed += 2
    assert ended(served)


def test_a_restart_keeps_what_was_left_of_a_second_deadline(serve: Serve, clock: ManualClock) -> None:
    served = serve()
    served.enrolled().take_part(1.0)
    clock.wait(101)
    served.edge.rounds.advance()  # too few: it begins again
    clock.wait(50)
    served.close()
    served = serve()
    with_two_of_three(served)
    clock.wait(49)
    assert not ended(served) or served.edge.store.number_count(1) == 3
