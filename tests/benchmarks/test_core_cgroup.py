# SPDX-License-Identifier: Apache-2.0
"""Qwen2.5-0.5B trains inside a cgroup of 256 MB, with nothing of the bundle in the page cache at first.

In a cgroup the pages of mapped files count too: 278 MB of weights cannot all stay, and the kernel drops and reads them again and
again. Needs a system that lets this process make a memory cgroup.
"""

from __future__ import annotations

import itertools
import os
import statistics
from pathlib import Path

import pytest
from tests.benchmarks.core_bundles import Bundle, Wanted, first_that_fits
from tests.benchmarks.core_process import fresh_state, train
from tests.benchmarks.figures import write_table

MODEL, LENGTH, STEPS = "Qwen2.5-0.5B", 256, 20
LIMIT_BYTES = 256_000_000
HEADER = (
    "Qwen2.5-0.5B in a cgroup of 256 MB",
    "steps",
    "peak, MB",
    "mapped dirty, MB",
    "read from disk, MB",
    "read a step, MB",
    "weights, MB",
    "seconds a step",
)


@pytest.mark.benchmark
def test_trains_inside_a_small_cgroup() -> None:
    from bespoke.system.limits import make_child_group

    made = first_that_fits(Wanted(MODEL, "mesp", LENGTH, None), 45, 64)
    group = make_child_group(LIMIT_BYTES)
    assert group is not None, "no memory cgroup can be made here"
    with fresh_state(made, "cgroup") as state:
        try:
            drop_from_page_cache(made)
            run = train(made, state, STEPS, cgroup=group.folder)
            kills = group.kills()
        finally:
            group.remove()
    ends = [seconds for seconds, _, _ in run.steps]
    each = [after - before for before, after in itertools.pairwise(ends)]
    read = run.watched["disk_bytes_read"]
    write_table(
        "core_cgroup",
        HEADER,
        [
            [
                f"`mesp`, built for {made.wanted.memory_mb:g} MB",
                len(run.steps),
                f"{run.peak_bytes / 1e6:.1f}",
                f"{run.watched['dirty_mapped_peak_bytes'] / 1e6:.1f}",
                read / 1e6,
                read / 1e6 / STEPS,
                made.weight_bytes / 1e6,
                statistics.median(each),
            ]
        ],
        f"Sequence {LENGTH}, SGD, a commit after every step; weights dropped from the page cache before the start. The cgroup "
        f"({group.kind}) counts file pages as well and has no swap; {run.watched['major_faults']} page faults waited for the disk. "
        "Read from disk: of the whole process, opening and the gate included.",
    )
    assert len(run.steps) == STEPS
    assert run.report["stopped_because"] == "finished"
    assert kills == 0
    assert read >= made.weight_bytes, "the files were still in the page cache"


def drop_from_page_cache(made: Bundle) -> None:
    """The bundle's files, after what is still to be written has been."""
    os.sync()
    for file in made.path.rglob("*"):
        if file.is_file():
            _drop(file)


def _drop(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
