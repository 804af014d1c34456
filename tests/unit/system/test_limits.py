# SPDX-License-Identifier: Apache-2.0
"""Limits that the kernel enforces, shown on real child processes that go over them."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bespoke.errors import ConfigError
from bespoke.system import limits
from bespoke.system.limits import KINDS, LimitKind, enforce_limit

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits exist on Linux only")
MB = 1_000_000

CHILD = """
import mmap, sys
import numpy as np
from bespoke.system.limits import enforce_limit
from bespoke.system.malloc import steady_malloc
steady_malloc()
kind, added, take, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
limit = enforce_limit(added, (kind,))
print(limit.kind, flush=True)
if limit.kind == "none":
    sys.exit()
weights = np.memmap(path, np.uint8, "r")  # larger than the limit: mapped weights must not count
assert int(weights.sum(dtype=np.int64)) == len(weights)
try:
    array = np.ones(take, np.uint8)
    print("allocated", flush=True)
except MemoryError:
    print("MemoryError", flush=True)
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("limits") / "weights"
    path.write_bytes(b"\x01" * (120 * MB))
    return path


@dataclass
class Ended:
    process: int
    code: int
    said: list[str]


def child(kind: LimitKind, added: int, take: int, weights: Path) -> Ended:
    command = [sys.executable, "-c", CHILD, kind, str(added), str(take), str(weights)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        output, errors = process.communicate()
    assert not errors, errors
    if output.split() == ["none"]:
        pytest.skip(f"this system does not allow {kind}")
    return Ended(process.pid, process.returncode, output.split())


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_within_its_limit_runs_and_mapped_files_do_not_count(kind: LimitKind, weights: Path) -> None:
    ended = child(kind, 60 * MB, 50 * MB, weights)
    assert (ended.code, ended.said) == (0, [kind, "allocated"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_that_goes_over_is_stopped(kind: LimitKind, weights: Path) -> None:
    ended = child(kind, 60 * MB, 80 * MB, weights)
    if kind == "rlimit_data":
        assert (ended.code, ended.said) == (0, [kind, "MemoryError"])
    else:
        assert (ended.code, ended.said) == (-signal.SIGKILL, [kind])


def test_no_group_is_left_behind_even_by_a_killed_child(weights: Path) -> None:
    home = limits._own_cgroup("cgroup1", Path("/proc/self"))
    if home is None:
        pytest.skip("no cgroup v1 with memory")
    ended = [child("cgroup1", 60 * MB, taken, weights) for taken in (80 * MB, 50 * MB)]
    assert [one.code for one in ended] == [-signal.SIGKILL, 0]
    assert not any((home / f"bespoke_limit_{one.process}").exists() for one in ended)


def test_lifting_gives_the_old_limit_back() -> None:
    script = (
        "import resource, numpy as np\nfrom bespoke.system.limits import enforce_limit\n"
        "before = resource.getrlimit(resource.RLIMIT_DATA)\nlimit = enforce_limit(10_000_000, ('rlimit_data',))\n"
        "assert resource.getrlimit(resource.RLIMIT_DATA) != before\nlimit.lift()\n"
        "assert resource.getrlimit(resource.RLIMIT_DATA) == before\nnp.ones(50_000_000, np.uint8)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_nothing_allowed_is_said() -> None:
    assert enforce_limit(MB, ()).kind == "none"


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_limit_of_nothing_is_refused(wrong: int) -> None:
    with pytest.raises(ConfigError, match="more than 0"):
        enforce_limit(wrong)


def test_version_2_takes_a_sibling_where_the_own_group_cannot_hand_memory_down(tmp_path: Path) -> None:
    """On plain folders laid out as cgroup v2: none of our machines offers it with the memory controller."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    own = mount / "app.slice" / "shell.scope"
    own.mkdir(parents=True)
    (mount / "app.slice" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (own / "cgroup.subtree_control").write_text("\n")
    proc.mkdir()
    (proc / "cgroup").write_text("1:name=systemd:/\n0::/user.slice/app.slice/shell.scope\n")
    (proc / "mountinfo").write_text(
        "25 1 0:20 / /proc rw - proc proc rw\n"
        f"30 25 0:26 /user.slice {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    limit = limits._enter_cgroup("cgroup2", 50 * MB, proc)
    assert limit is not None
    made = mount / "app.slice" / f"bespoke_limit_{os.getpid()}"
    read = functools.partial(lambda name: (made / name).read_text())
    assert (read("memory.max"), read("memory.swap.max"), read("cgroup.procs")) == (str(50 * MB), "0", str(os.getpid()))
    (mount / "app.slice" / "cgroup.subtree_control").write_text("cpu\n")
    assert limits._enter_cgroup("cgroup2", 50 * MB, proc) is None
