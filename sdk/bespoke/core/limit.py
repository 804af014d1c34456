# SPDX-License-Identifier: Apache-2.0
"""The limit that the system enforces on the child, made by the parent and entered by the child before it becomes the core.

The core keeps its budget by asking before it takes memory; this limit shows that it does. It is the budget and a margin, for what
the system counts and the footprint does not: page tables, the kernel's own memory, counting in lots, and, in a cgroup, the file
pages that are being read. RLIMIT_DATA counts addresses and not pages, so a stack of 8 MiB for each thread comes on top.
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
        """What launch.py is told."""
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
        """Whether pages of files count against the process that touches them first."""
        return self._group is not None

    def killed(self) -> bool:
        """Whether the system ended the child for going over."""
        return self._group is not None and self._group.kills() > 0


def limit_megabytes(size: int | None) -> float:
    """The limit in MB as the core takes it: -1 is no limit, and 0 would be the bundle's budget."""
    return -1.0 if size is None else max(1, size) / 1e6
