# SPDX-License-Identifier: Apache-2.0
"""The limit that the system enforces on the child. The parent creates it; the child enters it before it becomes the core.

The core keeps its budget because it checks before it takes memory. This limit proves that it does. It is the budget and a margin
for memory that the system counts and the footprint does not: page tables, the kernel's own memory, rounding of the counters, and
in a cgroup, file pages that are being read. RLIMIT_DATA counts addresses and not pages, so each thread adds a stack of 8 MiB.
"""

from __future__ import annotations

import os
from typing import Any

from bespoke.system.limits import ChildGroup, make_child_group

__all__ = ["ChildLimit", "limit_megabytes"]

MARGIN_BYTES = 24 * 2**20
STACK_BYTES = 8 * 2**20


class ChildLimit:
    """Context manager around the child's life. `limit_bytes` None enforces nothing."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._group: ChildGroup | None = None

    def __enter__(self) -> ChildLimit:
        if self._limit_bytes is not None:
            self._group = make_child_group(self._limit_bytes + MARGIN_BYTES)
        return self

    def __exit__(self, *_: object) -> None:
        if self._group is not None:
            self._group.remove()

    def request(self) -> dict[str, Any]:
        """Returns the request to launch.py."""
        group, limit = self._group, self._limit_bytes
        stacks = STACK_BYTES * (2 + (os.cpu_count() or 1))
        return {
            "parent": os.getpid(),
            "cgroup": None if group is None else str(group.folder),
            "kind": None if group is None else group.kind,
            "data_bytes": None if limit is None else limit + MARGIN_BYTES + stacks,
        }

    @property
    def counts_files(self) -> bool:
        """Whether file pages count against the process that touches them first."""
        return self._group is not None

    def killed(self) -> bool:
        """Whether the system ended the child for exceeding the limit."""
        return self._group is not None and self._group.kills() > 0


def limit_megabytes(size: int | None) -> float:
    """Returns a limit in MB in the form that the core takes. -1 is no limit; 0 would be the bundle's budget."""
    return -1.0 if size is None else max(1, size) / 1e6
