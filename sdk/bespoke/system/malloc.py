# SPDX-License-Identifier: Apache-2.0
"""Settings of the C library's malloc, so that freed memory does not count as held."""

from __future__ import annotations

import contextlib
import ctypes

__all__ = ["release_free_memory", "steady_malloc"]


def steady_malloc(threshold_bytes: int = 1 << 17) -> bool:
    """Makes glibc give freed blocks back at once, so that the same calls reach the same peak; True if it took.

    By default glibc raises its threshold up to 32 MB as blocks are freed, and from then on holes stay in the heap. Aligned blocks,
    which torch asks for, leave holes that the next one of the same size does not fit: after a training step of Qwen2.5-0.5B at
    sequence 256 (35 MB live), 94 MB of freed memory stayed with the default and with 1 MiB, 6 MB with 256 KiB, none with 128 KiB.
    It costs page faults: 22 s of CPU a step against 24 with 256 KiB and 22 with 1 MiB, so nothing that could be measured.
    Arenas are limited to one: every other thread would otherwise keep a heap of its own.
    No effect on other C libraries. Call once, at the start.
    """
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return False
    trim_threshold, mmap_threshold, arena_max = -1, -3, -8  # malloc.h
    settings = ((mmap_threshold, threshold_bytes), (trim_threshold, threshold_bytes), (arena_max, 1))
    taken = [mallopt(name, value) == 1 for name, value in settings]  # all are set, even where one of them fails
    return all(taken)


def release_free_memory() -> None:
    """Gives freed memory that malloc holds back to the system (0.2 to 3 ms); no effect outside glibc."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(function: str) -> ctypes._NamedFuncPointer | None:
    with contextlib.suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        _ = library.gnu_get_libc_version  # musl has neither this nor the settings
        return getattr(library, function)
    return None
