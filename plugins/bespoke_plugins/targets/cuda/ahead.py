# SPDX-License-Identifier: Apache-2.0
"""Copies weights to the device one group ahead of the plan: while a block computes, the next block's weights are copied.

An engine does not know what a plan loads next, but a plan does the same in every step. So this module remembers which group
followed the last two loads. Two loads tell the forward pass through the blocks from the backward pass. A wrong guess costs a copy
and changes no result.

The bytes come from a mapped file. A thread copies them, on its own stream on a GPU. So reading the file delays neither the plan's
thread nor the device.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch

__all__ = ["Ahead", "Group"]


class Group(NamedTuple):
    """A group's mapped file in the process's memory."""

    address: int
    size: int


class Ahead:
    """Copies groups ahead. `guessed`: groups that were copied or on their way when they were needed. Call it from one thread."""

    def __init__(self, device: torch.device, view: Callable[[Group], torch.Tensor]) -> None:
        """`view` returns a group's bytes as a tensor over the mapped memory."""
        self.guessed = 0
        self._device, self._view = device, view
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="weights")
        self._last: tuple[Group | None, Group | None] = (None, None)
        self._after: dict[tuple[Group | None, Group | None], Group] = {}
        self._coming: tuple[Group, Future[torch.Tensor]] | None = None

    def take(self, group: Group) -> torch.Tensor:
        """The group's bytes on the device. Starts the copy of the next group."""
        self._after[self._last] = group
        self._last = (self._last[1], group)
        copy = self._arrived(group)
        if copy is None:
            copy = self._worker.submit(self._copied, group).result()
        if self._stream is not None:  # allocated on that stream and used on this one
            copy.record_stream(torch.cuda.current_stream(self._device))
        following = self._after.get(self._last)
        if following is not None:
            self._coming = following, self._worker.submit(self._copied, following)
        return copy

    def wait(self) -> None:
        """Waits until nothing reads mapped memory."""
        if self._coming is not None:
            self._coming[1].exception()

    def drop(self) -> None:
        """Waits and frees the device's memory. The order of loads stays known."""
        self.wait()
        self._coming = None

    def _arrived(self, group: Group) -> torch.Tensor | None:
        if self._coming is None:
            return None
        (guess, copy), self._coming = self._coming, None
        failed = copy.exception() is not None  # waits for a wrong guess too, so there are never more than two groups
        if failed or guess != group:  # memory may suffice for this group even if it did not for a guess
            return None
        self.guessed += 1
        return copy.result()

    def _copied(self, group: Group) -> torch.Tensor:
        if self._stream is None:
            return self._view(group).clone()
        with torch.cuda.stream(self._stream):
            copy = self._view(group).to(self._device)
        self._stream.synchronize()
        return copy
