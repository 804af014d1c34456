# SPDX-License-Identifier: Apache-2.0
"""How many threads torch computes with, while this runtime computes.

Torch takes as many as there are cores. Each operator then waits for all of them, and on a machine that does other things one of
them is always late: operators wait far longer than they compute. So a small model, which gains nothing by more, takes one thread;
a large one takes half of what torch would, which leaves the other half to the rest of the machine. Decided by model and machine,
never by the load: results may depend on the number in their last bits. docs/explanation/speed.md has the measurements.

Who has said a number keeps it: OMP_NUM_THREADS or MKL_NUM_THREADS, or another number than torch's own in torch.set_num_threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

WORTH_THREADS = 1 << 20  # weights in a matrix of the MLP: below, two threads were no faster than one on an idle machine
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def threads_for(matrix_weights: int) -> int | None:
    """How many threads to compute a model with whose MLP matrices have so many weights; None: leave torch as it is."""
    own = torch.get_num_threads()
    if any(os.environ.get(name) for name in _VARIABLES) or own not in _torch_defaults():
        return None
    return max(1, own // 2) if matrix_weights >= WORTH_THREADS else 1


@contextmanager
def limited(count: int | None) -> Iterator[None]:
    """Computes with `count` threads; afterwards torch has what it had before: the setting is the whole process's."""
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
    """What torch may take of itself: as many as there are cores or hardware threads, of the machine or of this process."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return {os.cpu_count() or 1, usable, _cores()}


@cache
def _cores() -> int:
    """Cores of the machine, which do not change: read once, not for each answer."""
    return len(set(_cpu_lists()))


def _cpu_lists() -> Iterator[str]:
    """The hardware threads of each core, once for each of them."""
    for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            yield path.read_text()
        except OSError:
            continue
