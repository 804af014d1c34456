# SPDX-License-Identifier: Apache-2.0
"""Weights are copied one group ahead: what comes next is known from the step before, and a wrong guess changes nothing."""

from __future__ import annotations

import threading

import pytest
import torch

from bespoke_plugins.targets.cuda.ahead import Ahead, Group

FORWARD_AND_BACK = [0, 1, 2, 3, 2, 1]  # a block comes before another one on the way back


class Files:
    """Groups of weights in memory, and what was read of them, in order."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.lacking = 0  # so many reads find no memory on the device

    def __call__(self, group: Group) -> torch.Tensor:
        if self.lacking:
            self.lacking -= 1
            raise torch.OutOfMemoryError("no memory")
        self.read.append(group.address)
        return torch.full((group.size,), group.address, dtype=torch.uint8)


def taken(ahead: Ahead, address: int) -> None:
    copy = ahead.take(Group(address, 10 + address))
    assert copy.tolist() == [address] * (10 + address)


def test_from_the_second_step_on_every_group_was_on_its_way() -> None:
    files = Files()
    ahead = Ahead(torch.device("cpu"), files)
    for address in FORWARD_AND_BACK * 3:
        taken(ahead, address)
    # The step's first two loads have other ones before them in the first step than later.
    assert ahead.guessed == 3 * len(FORWARD_AND_BACK) - len(FORWARD_AND_BACK) - 2
    assert files.read[: 3 * len(FORWARD_AND_BACK)] == FORWARD_AND_BACK * 3  # none twice


def test_a_copy_begins_before_it_is_asked_for_and_on_another_thread() -> None:
    again = threading.Event()
    threads = []

    def view(group: Group) -> torch.Tensor:
        threads.append(threading.current_thread())
        if len(threads) == 6:  # the second time that group 2 is read
            assert group.address == 2
            again.set()
        return torch.zeros(group.size, dtype=torch.uint8)

    ahead = Ahead(torch.device("cpu"), view)
    for address in (0, 1, 2, 0, 1):
        ahead.take(Group(address, 4))
    assert again.wait(10)
    assert threading.current_thread() not in threads


def test_a_wrong_guess_is_dropped_and_the_right_group_copied() -> None:
    files = Files()
    ahead = Ahead(torch.device("cpu"), files)
    for address in (0, 1, 2, 0, 1, 7, 2):
        taken(ahead, address)
    assert files.read.count(7) == 1


def test_without_memory_for_a_guess_what_is_needed_is_copied_later() -> None:
    files = Files()
    ahead = Ahead(torch.device("cpu"), files)
    for address in (0, 1, 2, 0, 1, 2, 0):
        taken(ahead, address)
    ahead.wait()
    files.lacking = 1
    taken(ahead, 1)  # is there; for group 2, whose copy begins, there is no memory
    ahead.wait()
    assert files.lacking == 0
    taken(ahead, 2)


def test_without_memory_for_what_is_needed_the_error_is_torchs() -> None:
    files = Files()
    files.lacking = 1
    with pytest.raises(torch.OutOfMemoryError):
        Ahead(torch.device("cpu"), files).take(Group(0, 4))


def test_what_was_dropped_is_copied_again() -> None:
    files = Files()
    ahead = Ahead(torch.device("cpu"), files)
    for address in (0, 1, 0, 1, 0):
        taken(ahead, address)
    ahead.drop()
    guessed, before = ahead.guessed, files.read.count(1)
    taken(ahead, 1)
    assert ahead.guessed == guessed
    assert files.read.count(1) > before
