# SPDX-License-Identifier: Apache-2.0
"""Whether files were made from inputs that are still the same, so that Maven's second call makes nothing again."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest(inputs: Iterable[Path]) -> str:
    """The sha256 of files, and of all files in folders, by their paths and contents."""
    found = hashlib.sha256()
    for given in inputs:
        for path in sorted(given.rglob("*")) if given.is_dir() else [given]:
            if path.is_file():
                found.update(f"{path}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()


def is_unchanged(stamp: Path, inputs: str) -> bool:
    return stamp.exists() and stamp.read_text(encoding="utf-8") == inputs
