# SPDX-License-Identifier: Apache-2.0
"""Memory of this process.

The footprint is the figure by which phone systems judge a process: anonymous, shared-memory and swapped pages (RssAnon +
RssShmem + VmSwap). Pages of mapped files do not count. Clean ones cost nothing; dirty ones have a figure of their own.

The figures come from /proc/self/status, read through a descriptor that stays open: 3 to 10 us a read. /proc/self/statm
takes 1 us but lacks swap, and counts shared memory as file pages. Both are as exact as the kernel's counters. From Linux
6.16 on these are exact to the page, before 6.2 to 64 pages a thread. From 6.2 to 6.15 each may lag by max(32, 2 * CPUs)
pages for every CPU. /proc/self/smaps and smaps_rollup are always exact and cost 1 to 30 ms: they are for reports.

Without /proc nothing is measured: `can_measure()` is False and all figures are 0.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

__all__ = [
    "Footprint",
    "anonymous_bytes",
    "bytes_read",
    "bytes_written",
    "can_measure",
    "read_footprint",
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
    """Figures in bytes. `peak_resident` is the largest anonymous + shmem + file so far: file pages are in it."""

    anonymous: int = 0
    shmem: int = 0
    swap: int = 0
    file: int = 0
    peak_resident: int = 0

    @property
    def total(self) -> int:
        """The memory that counts against the budget: anonymous + shmem + swap."""
        return self.anonymous + self.shmem + self.swap


class _StatusFile:
    """The open file /proc/self/status. A forked child opens it again: the parent's descriptor would show the parent."""

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
    """Whether this system reports a process's anonymous memory (Linux with /proc)."""
    return os.path.exists("/proc/self/status")


def read_footprint() -> Footprint:
    """All figures at the same instant; zeros if `can_measure()` is False."""
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


def bytes_written() -> int:
    """Bytes that this process has written to storage so far; 0 if the system does not report it."""
    return _storage(b"write_bytes:")


def bytes_read() -> int:
    """Bytes that this process has read from storage so far. Reads from the page cache do not count."""
    return _storage(b"read_bytes:")


def _storage(label: bytes) -> int:
    try:
        text = Path("/proc/self/io").read_bytes()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(label)), 0)


def _kilobytes(status: bytes, label: bytes) -> int:
    start = status.find(label)
    if start < 0:
        return 0
    start += len(label)
    return int(status[start : status.index(b"kB", start)]) * 1024
