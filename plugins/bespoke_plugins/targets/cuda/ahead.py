# SPDX-License-Identifier: Apache-2.0
"""Weights on their way to the device, one group ahead of the plan: while a block computes, the next one's are copied.

An engine is not told what a plan loads next, but a plan does the same in every step. So what came after the last two loads is
remembered: two tell the way forward through the blocks from the way back. A wrong guess costs a copy and changes no result.

The bytes are those of a mapped file. A thread copies them, on a stream of its own where there is a GPU: reading the file holds up
neither the plan's thread nor the device.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch

__all__ = ["Ahead", "Group"]


class Group(NamedTuple):
    """Bytes of the process: a group's mapped file."""

    address: int
    size: int


class Ahead:
    """`guessed`: groups that were there, or on their way, when they were asked for. Calls come from one thread."""

    def __init__(self, device: torch.device, view: Callable[[Group], torch.Tensor]) -> None:
        """view: the bytes of a group as a tensor over the mapped memory."""
        self.guessed = 0
        self._device, self._view = device, view
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="weights")
        self._last: tuple[Group | None, Group | None] = (None, None)
        self._after: dict[tuple[Group | None, Group | None], Group] = {}
        self._coming: tuple[Group, Future[torch.Tensor]] | None = None

    def take(self, group: Group) -> torch.Tensor:
        """The group's bytes on the device. The next group's copy begins."""
        self._after[self._last] = group
        self._last = (self._last[1], group)
        copy = self._arrived(group)
        if copy is None:
            copy = self._worker.submit(self._copied, group).result()
        if self._stream is not None:  # it is of that stream's memory, and used on this one
            copy.record_stream(torch.cuda.current_stream(self._device))
        following = self._after.get(self._last)
        if following is not None:
            self._coming = following, self._worker.submit(self._copied, following)
        return copy

    def wait(self) -> None:
        """Afterwards nothing reads mapped memory."""
        if self._coming is not None:
            self._coming[1].exception()

    def drop(self) -> None:
        """Afterwards it holds nothing of the device's memory, either. What follows what stays known."""
        self.wait()
        self._coming = None

    def _arrived(self, group: Group) -> torch.Tensor | None:
        if self._coming is None:
            return None
        (guess, copy), self._coming = self._coming, None
        failed = copy.exception() is not None  # a wrong guess is waited for too: there are never more than two groups
        if failed or guess != group:  # without memory for a guess there may be some for what is needed now
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
