# SPDX-License-Identifier: Apache-2.0
"""What memory this process takes, and the question asked before it takes more.

Footprint is what phone systems judge a process by: anonymous pages, shared-memory pages and swapped pages (RssAnon +
RssShmem + VmSwap). Pages of mapped files are not in it; clean ones cost nothing, dirty ones are a number of their own.

Everything comes from /proc/self/status, read through a descriptor that stays open: 3 to 10 us a read. /proc/self/statm
takes 1 us but has neither swap nor shared memory apart from file pages. Both are as exact as the kernel's counters: to
the page from Linux 6.16 on (and before 6.2, but for 64 pages a thread); from 6.2 to 6.15 each may be late by
max(32, 2 * CPUs) pages for every CPU. /proc/self/smaps and smaps_rollup are exact always and cost 1 to 30 ms: they
are for reports.

Where there is no /proc, nothing is measured (`can_measure()` is False, all figures 0), and a guard can only compare
what is asked with the limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import threading
import time
from pathlib import Path
from typing import Self

from bespoke.config import MEGABYTE
from bespoke.errors import BudgetExceeded

__all__ = [
    "Footprint",
    "KernelPeak",
    "MemoryGuard",
    "MemoryMeter",
    "PeakSampler",
    "anonymous_bytes",
    "bytes_read",
    "bytes_written",
    "can_measure",
    "dirty_mapped_bytes",
    "read_footprint",
    "release_free_memory",
    "steady_malloc",
]

_FIELDS = {
    "anonymous": b"RssAnon:",
    "shmem": b"RssShmem:",
    "swap": b"VmSwap:",
    "file": b"RssFile:",
    "peak_resident": b"VmHWM:",
}


@dataclasses.dataclass(frozen=True)
class Footprint:
    """All in bytes. `peak_resident` is the highest of anonymous + shmem + file so far: file pages are in it."""

    anonymous: int = 0
    shmem: int = 0
    swap: int = 0
    file: int = 0
    peak_resident: int = 0

    @property
    def total(self) -> int:
        """What the budget counts: anonymous + shmem + swap."""
        return self.anonymous + self.shmem + self.swap


class _StatusFile:
    """/proc/self/status kept open. A forked child opens its own: the parent's descriptor would show the parent."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._owner = 0

    def read(self) -> bytes:
        if self._owner != os.getpid():
            self._descriptor = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
            self._owner = os.getpid()
        return os.pread(self._descriptor, 8192, 0)


_status = _StatusFile()


def can_measure() -> bool:
    """Whether this system tells a process its anonymous memory (Linux with /proc)."""
    return os.path.exists("/proc/self/status")


def read_footprint() -> Footprint:
    """All columns at one instant; zeros where `can_measure()` is False."""
    try:
        status = _status.read()
    except FileNotFoundError:
        return Footprint()
    return Footprint(**{name: _kilobytes(status, label) for name, label in _FIELDS.items()})


def anonymous_bytes() -> int:
    """The footprint now (anonymous + shmem + swap), for polling: 5 to 12 us."""
    try:
        status = _status.read()
    except FileNotFoundError:
        return 0
    return _kilobytes(status, b"RssAnon:") + _kilobytes(status, b"RssShmem:") + _kilobytes(status, b"VmSwap:")


def dirty_mapped_bytes() -> int:
    """Pages of mapped files that were written and are not yet on the disk, for reports (1 to 30 ms).

    Copies that a private map made of its file's pages are anonymous and not in here. Files on a tmpfs have no disk:
    their pages are in here and in `Footprint.shmem`.
    """
    total = 0
    counts = dict.fromkeys((b"Private_Dirty:", b"Shared_Dirty:", b"Anonymous:"), 0)
    mapped_file = False
    try:
        with open("/proc/self/smaps", "rb") as lines:
            for line in lines:
                words = line.split()
                if words[0] in counts:
                    counts[words[0]] = int(words[1]) * 1024
                elif not words[0].endswith(b":"):  # the first line of a map: range rights offset device inode path
                    total += _dirty(counts) if mapped_file else 0
                    counts = dict.fromkeys(counts, 0)
                    mapped_file = words[4] != b"0"
    except FileNotFoundError:
        return 0
    return total + (_dirty(counts) if mapped_file else 0)


def bytes_written() -> int:
    """Bytes this process has caused to be written to storage so far; 0 where the system does not say."""
    return _storage(b"write_bytes:")


def bytes_read() -> int:
    """Bytes this process has caused to be read from storage so far: what was in the page cache does not count."""
    return _storage(b"read_bytes:")


def _storage(label: bytes) -> int:
    try:
        text = Path("/proc/self/io").read_bytes()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(label)), 0)


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


def steady_malloc(threshold_bytes: int = 1 << 17) -> bool:
    """Makes glibc give freed blocks back at once, so that the same calls reach the same peak; True if it took.

    By default glibc raises its threshold up to 32 MB as blocks are freed, and from then on holes stay in the heap. Aligned blocks,
    which torch asks for, leave holes that the next one of the same size does not fit: after a training step of Qwen2.5-0.5B at
    sequence 256 (35 MB live), 94 MB of freed memory stayed with the default and with 1 MiB, 6 MB with 256 KiB, none with 128 KiB.
    It costs page faults: 22 s of CPU a step against 24 with 256 KiB and 22 with 1 MiB, so nothing that could be measured.
    Arenas are limited to one: every other thread would otherwise keep a heap of its own.
    No effect on other C libraries. Call once, at the start.
    """
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return False
    trim_threshold, mmap_threshold, arena_max = -1, -3, -8  # malloc.h
    settings = ((mmap_threshold, threshold_bytes), (trim_threshold, threshold_bytes), (arena_max, 1))
    taken = [mallopt(name, value) == 1 for name, value in settings]  # all are set, whatever one of them answers
    return all(taken)


def release_free_memory() -> None:
    """Gives freed memory that malloc holds back to the system (0.2 to 3 ms); no effect outside glibc."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(function: str) -> ctypes._NamedFuncPointer | None:
    with contextlib.suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        _ = library.gnu_get_libc_version  # musl has neither this nor the settings
        return getattr(library, function)
    return None


def _kilobytes(status: bytes, label: bytes) -> int:
    start = status.find(label)
    if start < 0:
        return 0
    start += len(label)
    return int(status[start : status.index(b"kB", start)]) * 1024


def _dirty(counts: dict[bytes, int]) -> int:
    return max(0, counts[b"Private_Dirty:"] + counts[b"Shared_Dirty:"] - counts[b"Anonymous:"])


def _mb(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"
