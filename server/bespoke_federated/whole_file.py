# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all, also after a power cut. Some are kept in a state by their sha256."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["FILES", "keep", "write_whole"]

FILES = "files"  # folder in a state


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file, in place of what is there."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def keep(state: Path, data: bytes) -> str:
    """Writes a file into a state by its sha256, which it returns. It is on the disk before anything names it."""
    sha256 = hashlib.sha256(data).hexdigest()
    write_whole(state / FILES / sha256, data)
    return sha256
