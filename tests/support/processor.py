# SPDX-License-Identifier: Apache-2.0
"""What /proc/cpuinfo says of this processor."""

from __future__ import annotations

from pathlib import Path

SPEED_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "amx_tile",
    "asimddp",
    "i8mm",
)  # they decide how fast matrices are multiplied

_FILE = Path("/proc/cpuinfo")


def processor_field(*names: str) -> str:
    """The content of the first line with one of these names. Empty where there is none."""
    for line in _FILE.read_text().splitlines() if _FILE.exists() else ():
        if line.startswith(names):
            return line.split(":", 1)[1].strip()
    return ""


def processor_flags() -> set[str]:
    return set(processor_field("flags", "Features").split())


def processor_name() -> str:
    return processor_field("model name") or "processor without a name"


def speed_flags() -> list[str]:
    """Those of SPEED_FLAGS that this processor has."""
    have = processor_flags()
    return [flag for flag in SPEED_FLAGS if flag in have]
