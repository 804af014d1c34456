# SPDX-License-Identifier: Apache-2.0
"""Reads a bundle into the page cache before the core maps it.

A cgroup counts the pages of a file against the process that touched them first. Under a small limit the core's own would be
dropped after each use, though the machine has room for them: 7 GB were read from the disk for two steps of a model of 0.5 GB,
and 0.3 GB with this. Read here, they are the parent's, as on a phone, where clean pages of files count against nobody. Skipped
where the machine has no room to keep them.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from bespoke.system.footprint import bytes_read

__all__ = ["read_through"]

_PIECE_BYTES = 2**20


def read_through(bundle: Path) -> int:
    """Reads every file of a bundle (a folder or a zip); returns how many bytes came from the disk for it."""
    files = sorted(bundle.rglob("*")) if bundle.is_dir() else [bundle]
    before = bytes_read()
    with contextlib.suppress(OSError):  # the core tells what is wrong with a file
        files = [file for file in files if file.is_file()]
        if 2 * sum(file.stat().st_size for file in files) < _available_bytes():
            piece = bytearray(_PIECE_BYTES)
            for file in files:
                with file.open("rb", buffering=0) as source:
                    while source.readinto(piece):
                        pass
    return bytes_read() - before


def _available_bytes() -> int:
    """What the machine could give without dropping what it uses; 0 where it does not say."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
