# SPDX-License-Identifier: Apache-2.0
"""One flipped bit after the other in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def flips(path: Path, positions: Iterator[int] | range) -> Iterator[int]:
    """Flip one bit of each of these bytes, one after the other, in the file itself."""
    with path.open("r+b", buffering=0) as file:
        for position in positions:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ (1 << position % 8)]))
            yield position
            file.seek(position)
            file.write(bytes([byte]))


def header_bytes(path: Path) -> int:
    """All of a text, the header of a tensor file."""
    if path.suffix != ".safetensors":
        return path.stat().st_size
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")
