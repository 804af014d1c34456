# SPDX-License-Identifier: Apache-2.0
"""What a process of the core takes while it computes: its memory as a phone's system counts it, and its processor's time."""

from __future__ import annotations

import os
import re
import threading
from typing import Self

COUNTED = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.MULTILINE)
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Watches another process from entry to exit or to the process's end.

    peak_bytes: its highest anonymous memory, looked at every millisecond
    processor_seconds: of all its threads; the wall's are those of other work, too
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes, self.processor_seconds = 0, 0.0
        self._files = [os.open(f"/proc/{pid}/{name}", os.O_RDONLY) for name in ("status", "stat")]
        self._left = threading.Event()
        self._began = self._spent()
        self._looking = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.processor_seconds = self._spent() - self._began
        self._left.set()
        self._looking.join()
        for file in self._files:
            os.close(file)

    def _look(self) -> None:
        while not self._left.wait(0.001):
            try:
                status = os.pread(self._files[0], 8192, 0)
            except ProcessLookupError:
                return
            self.peak_bytes = max(self.peak_bytes, 1024 * sum(int(kilobytes) for kilobytes in COUNTED.findall(status)))

    def _spent(self) -> float:
        """None are told of a process that has ended and was waited for."""
        try:
            user, system = os.pread(self._files[1], 4096, 0).rpartition(b")")[2].split()[11:13]
        except ProcessLookupError:
            return self._began
        return (int(user) + int(system)) / TICKS
