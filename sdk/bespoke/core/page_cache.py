# SPDX-License-Identifier: Apache-2.0
"""Reads a bundle into the page cache before the core maps it.

A cgroup counts the pages of a file against the process that touched them first. Under a small limit the system would drop the
core's pages after each use, although the machine has room for them. Two steps of a model of 0.5 GB then read 7 GB from the disk,
and 0.3 GB with this. Pages that are read here count against the parent. On a phone, clean pages of files count against no process.
Nothing is read if the machine has no room to keep the pages.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from bespoke.system.footprint import bytes_read

__all__ = ["read_through"]

_PIECE_BYTES = 2**20


def read_through(bundle: Path) -> int:
    """Reads every file of a bundle, which is a folder or a zip. Returns how many bytes came from the disk."""
    files = sorted(bundle.rglob("*")) if bundle.is_dir() else [bundle]
    before = bytes_read()
    with contextlib.suppress(OSError):  # the core reports what is wrong with a file
        files = [file for file in files if file.is_file()]
        if 2 * sum(file.stat().st_size for file in files) < _available_bytes():
            piece = bytearray(_PIECE_BYTES)
            for file in files:
                with file.open("rb", buffering=0) as source:
                    while source.readinto(piece):
                        pass
    return bytes_read() - before


def _available_bytes() -> int:
    """Returns the memory that the machine can give without dropping pages in use. 0: unknown."""
    try:
        available = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(available[1]) * 1024 if available else 0
