# SPDX-License-Identifier: Apache-2.0
"""What a process holds above an idle one, and its peak within a stretch of work."""

from __future__ import annotations

import os

from bespoke.system.footprint import anonymous_bytes, read_footprint
from bespoke.system.malloc import release_free_memory

__all__ = ["KernelPeak", "MemoryMeter"]


class MemoryMeter:
    """The footprint over that of the moment it was made: make it when imports are done and no model is open.

    Memory that was freed and that malloc still holds is given back first. Else it would be counted as idle, later serve
    tensors, and make them look smaller than they are.
    """

    def __init__(self) -> None:
        release_free_memory()
        self.idle = anonymous_bytes()

    def added(self) -> int:
        """Bytes above idle now; negative if the process has shrunk."""
        return anonymous_bytes() - self.idle


class KernelPeak:
    """The peak between `start` and `stop` by the kernel's own high-water mark: no thread, nothing missed, about 30 us.

    The mark (VmHWM) counts file pages too, so the answer is a bracket, (lowest, highest) bytes of anonymous + shmem:
    closed to one number when no file page came or went meanwhile. Unusable (`available` False) where the kernel does
    not let a process reset its mark. It moves `Footprint.peak_resident`, which is the same mark.
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
