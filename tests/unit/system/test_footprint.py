# SPDX-License-Identifier: Apache-2.0
"""The memory figures, held against what the test itself allocates, maps and writes, and against smaps_rollup."""

from __future__ import annotations

import gc
import mmap
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bespoke.system.footprint import anonymous_bytes, bytes_written, can_measure, read_footprint
from bespoke.system.guard import KernelPeak, MemoryMeter
from bespoke.system.malloc import release_free_memory, steady_malloc

pytestmark = pytest.mark.skipif(not can_measure(), reason="no /proc on this system")
MB = 1_000_000
SLACK = 1_500_000  # what Python itself may allocate or drop between two readings


def block(size: int) -> mmap.mmap:
    """Private memory straight from the system, so that no hole in malloc's heap can serve it."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, size, mmap.PAGESIZE):
        memory[start] = 1
    return memory


def test_anonymous_bytes_rise_and_fall_with_what_is_allocated() -> None:
    before = anonymous_bytes()
    memory = block(40 * MB)
    assert abs(anonymous_bytes() - before - 40 * MB) < SLACK
    memory.close()
    assert abs(anonymous_bytes() - before) < SLACK


def test_the_fast_reading_agrees_with_the_exact_one() -> None:
    exact = re.search(r"^Anonymous:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert exact is not None
    footprint = read_footprint()
    assert abs(footprint.anonymous - int(exact[1]) * 1024) < SLACK
    assert abs(footprint.total - anonymous_bytes()) < SLACK
    assert footprint.peak_resident >= footprint.anonymous + footprint.file - SLACK


def test_polling_is_cheap() -> None:
    started = time.perf_counter()
    for _ in range(1000):
        anonymous_bytes()
    assert time.perf_counter() - started < 0.2  # 6 us each here; room for a busy machine


def test_a_forked_child_reads_its_own_memory() -> None:
    anonymous_bytes()
    script = (
        "import os, sys; from bespoke.system.footprint import anonymous_bytes\n"
        "big = bytearray(b'x') * 60_000_000; before = anonymous_bytes(); pid = os.fork()\n"
        "if pid == 0:\n more = bytearray(b'x') * 30_000_000; os._exit(anonymous_bytes() - before < 29_000_000)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.slow
def test_shared_memory_is_in_the_footprint_and_mapped_file_pages_are_not(tmp_path: Path) -> None:
    gc.collect()
    release_free_memory()  # else what earlier tests left goes meanwhile
    before = read_footprint()
    shared = mmap.mmap(-1, 20 * MB)
    shared.write(b"x" * (20 * MB))
    after = read_footprint()
    assert abs(after.shmem - before.shmem - 20 * MB) < SLACK
    assert abs(after.total - before.total - 20 * MB) < SLACK
    shared.close()
    path = tmp_path / "weights"
    path.write_bytes(b"x" * (20 * MB))
    before = read_footprint()
    weights = np.memmap(path, np.uint8, "r")
    assert int(weights.sum(dtype=np.int64)) == 20 * MB * ord("x")
    after = read_footprint()
    assert abs(after.total - before.total) < SLACK
    assert after.file - before.file > 19 * MB or after.shmem - before.shmem > 19 * MB  # the latter on a tmpfs


def test_written_pages_of_a_shared_map_are_not_anonymous_and_those_of_a_private_map_are(tmp_path: Path) -> None:
    path = tmp_path / "scratch"
    path.write_bytes(bytes(16 * MB))
    anonymous = read_footprint().anonymous
    scratch = np.memmap(path, np.uint8, "r+")
    scratch[:] = 7
    assert abs(read_footprint().anonymous - anonymous) < SLACK
    private = np.memmap(path, np.uint8, "c")
    private[:] = 9
    assert abs(read_footprint().anonymous - anonymous - 16 * MB) < SLACK


def test_bytes_written_counts_what_goes_to_the_disk(tmp_path: Path) -> None:
    before = bytes_written()
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(4 * MB))
        file.flush()
        os.fsync(file.fileno())
    written = bytes_written() - before
    if written == 0:
        pytest.skip("the test folder is not on a disk")
    assert 4 * MB <= written < 6 * MB


def test_the_meter_counts_from_its_making() -> None:
    meter = MemoryMeter()
    memory = block(10 * MB)
    assert abs(meter.added() - 10 * MB) < SLACK
    memory.close()


def test_the_kernels_mark_brackets_a_peak_too_short_to_sample() -> None:
    peak = KernelPeak()
    if not peak.available:
        pytest.skip("this kernel does not let a process reset its mark")
    for size in (32 * MB, 8 * MB):  # the second: an earlier, higher mark is forgotten
        before = anonymous_bytes()
        peak.start()
        block(size).close()
        low, high = peak.stop()
        assert abs(low - before - size) < SLACK
        assert low <= high < low + SLACK
    peak.close()


STEADY = """
import gc, sys
import numpy as np
from bespoke.system.footprint import anonymous_bytes
from bespoke.system.malloc import release_free_memory, steady_malloc
if sys.argv[1] == "steady":
    assert steady_malloc()
draw = np.random.default_rng(0)
before = anonymous_bytes()
live = []
for size in draw.choice([4_000, 80_000, 400_000, 2_000_000, 8_000_000], 2000):
    if len(live) > 6:
        live.pop(int(draw.integers(len(live))))
    live.append(np.ones(size, np.uint8))
kept = np.ones(8_000, np.uint8)
live.clear()
print(anonymous_bytes() - before)
"""


@pytest.mark.slow
def test_steady_malloc_leaves_no_holes_behind() -> None:
    def left(mode: str) -> int:
        return int(subprocess.check_output([sys.executable, "-c", STEADY, mode]))

    if not steady_malloc.__module__ or not Path("/proc/self/maps").read_text().count("libc.so.6"):
        pytest.skip("not glibc")
    assert left("steady") < 2_500_000
