# SPDX-License-Identifier: Apache-2.0
"""The memory limit of a process that trains: the question asked before each load and call, and the peaks between.

Where nothing can be measured (`footprint.can_measure()`), a guard only compares what is asked with the limit.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Self

from bespoke.config import MEGABYTE
from bespoke.errors import BudgetExceeded
from bespoke.system.footprint import anonymous_bytes, read_footprint
from bespoke.system.malloc import release_free_memory

__all__ = ["KernelPeak", "MemoryGuard", "MemoryMeter", "PeakSampler"]


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


class MemoryGuard:
    """Asked before each load and call whether it still fits: the process ends in our error, not by the system's hand.

    limit_added_bytes: what may come on top of `idle` (both bytes); None measures only. `peak_added` is the most that
    was seen at any `ask` or `observe`; what rises and falls within one call is seen only through a `PeakSampler` or a
    `KernelPeak` whose figure is handed to `observe`.
    """

    def __init__(self, limit_added_bytes: int | None, idle: int) -> None:
        self.limit_added_bytes = limit_added_bytes
        self.idle = idle
        self._peak = idle

    @property
    def peak_added(self) -> int:
        return self._peak - self.idle

    def observe(self, footprint_bytes: int | None = None) -> int:
        """Takes a figure (by default the footprint now) into the peak, and returns it."""
        seen = anonymous_bytes() if footprint_bytes is None else footprint_bytes
        self._peak = max(self._peak, seen)
        return seen

    def ask(self, bytes_to_add: int, subject: str, now: int | None = None) -> None:
        """Raises BudgetExceeded if `subject`, about to add so many bytes, would go over the limit. `now`: the footprint that they
        are added to, where some of them are held already."""
        start = self.observe() if now is None else now
        if self.limit_added_bytes is None or start + bytes_to_add <= self.idle + self.limit_added_bytes:
            return
        # Freed memory that malloc still holds must not refuse what would fit.
        release_free_memory()
        held = (anonymous_bytes() if now is None else now) - self.idle
        if held + bytes_to_add <= self.limit_added_bytes:
            return
        raise BudgetExceeded(
            subject,
            got=f"{_mb(held)} held above the idle process and {_mb(bytes_to_add)} more to come",
            expected=f"at most {_mb(self.limit_added_bytes)} together",
            next_step="Raise the memory budget, or build with shorter sequences, a lower rank or a smaller batch",
        )


class PeakSampler:
    """Context manager: a thread that reads the footprint every `interval_s` and keeps the highest.

    One read takes 5 to 12 us. The thread needs the interpreter lock: during Python code that does not let go of it readings
    come every 5 ms; during array operations, which do, every interval. Peaks shorter than that are missed;
    `KernelPeak` misses none.
    """

    def __init__(self, interval_s: float = 0.001) -> None:
        self.interval_s = interval_s
        self.peak_bytes = 0
        self.samples = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory peak", daemon=True)

    def __enter__(self) -> Self:
        self._take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._take()

    def _sample(self) -> None:
        while not self._stop.is_set():
            self._take()
            time.sleep(self.interval_s)  # cheaper than waiting for the event

    def _take(self) -> None:
        self.peak_bytes = max(self.peak_bytes, anonymous_bytes())
        self.samples += 1


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


def _mb(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"
