# SPDX-License-Identifier: Apache-2.0
"""Meters of a process's memory: the growth since it was idle, and the peak during a stretch of work."""

from __future__ import annotations

import os

from bespoke.system.footprint import anonymous_bytes, read_footprint
from bespoke.system.malloc import release_free_memory

__all__ = ["KernelPeak", "MemoryMeter"]


class MemoryMeter:
    """Growth of the footprint since the meter was created. Create it after imports, before a model is open.

    Freed memory that malloc still holds is given back first. Otherwise it would count as idle, hold tensors later and make
    them look smaller than they are.
    """

    def __init__(self) -> None:
        release_free_memory()
        self.idle = anonymous_bytes()

    def added(self) -> int:
        """Bytes above idle now; negative if the process has shrunk."""
        return anonymous_bytes() - self.idle


class KernelPeak:
    """The peak between `start` and `stop`, by the kernel's high-water mark. It needs no thread, misses nothing, takes 30 us.

    The mark (VmHWM) counts file pages too. So the result is a bracket, (lowest, highest) bytes of anonymous + shmem. Both
    are equal if the number of file pages did not change meanwhile. `available` is False if the kernel does not let a process
    reset its mark. A reset changes `Footprint.peak_resident`, which is the same mark.
    """

    def __init__(self) -> None:
        self._file_pages = 0
        try:
            self._reset = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            self.available = True
        except OSError:
            self.available = False

    def start(self) -> None:
        if self.available:
            os.pwrite(self._reset, b"5", 0)
            self._file_pages = read_footprint().file

    def stop(self) -> tuple[int, int]:
        now = read_footprint()
        if not self.available:
            return now.anonymous + now.shmem, now.anonymous + now.shmem
        lowest = now.peak_resident - max(self._file_pages, now.file)
        highest = now.peak_resident - min(self._file_pages, now.file)
        return max(lowest, now.anonymous + now.shmem), max(highest, now.anonymous + now.shmem)

    def close(self) -> None:
        if self.available:
            self.available = False
            os.close(self._reset)
