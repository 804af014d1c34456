# SPDX-License-Identifier: Apache-2.0
"""The number of threads that torch computes with while this runtime computes.

By default torch takes as many threads as there are cores. Each operator then waits for all of them. On a machine that does other
things one of them is always late, and operators wait far longer than they compute. So a small model, which gains nothing from more,
takes one thread. A large model takes half of what torch would and leaves the other half to the rest of the machine. Only the model
and the machine decide, never the load, because the last bits of results may depend on the number. docs/explanation/speed.md has the
measurements.

A number that somebody has set is kept: by OMP_NUM_THREADS or MKL_NUM_THREADS, or by torch.set_num_threads if it is not the default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

# Weights in a matrix of the MLP. With fewer, two threads were no faster than one on an idle machine.
WORTH_THREADS = 1 << 20
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def threads_for(matrix_weights: int) -> int | None:
    """The number of threads for a model with `matrix_weights` weights in an MLP matrix. None leaves torch as it is."""
    own = torch.get_num_threads()
    if any(os.environ.get(name) for name in _VARIABLES) or own not in _torch_defaults():
        return None
    return max(1, own // 2) if matrix_weights >= WORTH_THREADS else 1


@contextmanager
def limited(count: int | None) -> Iterator[None]:
    """Computes with `count` threads within the context. Then it restores the setting, which is the whole process's."""
    if count is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _torch_defaults() -> set[int]:
    """The numbers that torch may choose by default: the cores or hardware threads of the machine or of this process."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return {os.cpu_count() or 1, usable, _cores()}


@cache
def _cores() -> int:
    """The number of cores of the machine. It never changes, so it is read once and not for each answer."""
    return len(set(_cpu_lists()))


def _cpu_lists() -> Iterator[str]:
    """Yields, for each hardware thread, the list of all hardware threads of its core."""
    for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            yield path.read_text()
        except OSError:
            continue
