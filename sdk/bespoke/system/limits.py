# SPDX-License-Identifier: Apache-2.0
"""Memory limits that the kernel enforces: they prove that a process stays within its budget.

A child process calls `enforce_limit(added_bytes)` after its imports. From then on it may add that many bytes to its memory.
The first kind of limit that works is used:

- `cgroup2`, `cgroup1` count pages first touched after the call: anonymous, shared memory, page tables. File pages count
  too, but the kernel first drops clean ones and writes dirty ones back. Counting is in lots of 256 KiB a CPU. A process over
  the limit gets SIGKILL.
- `rlimit_data` counts addresses of private writable maps, touched or not: heap, arrays, 8 MiB for the stack of each later
  thread. It does not count shared maps and mapped files. Over the limit an allocation fails: MemoryError, or torch's
  RuntimeError.
- `none`: the system offers neither, nothing is counted.

For a child that is another program, `make_child_group` creates the cgroup and the child enters it before it starts.

In a cgroup, pages that the process gave back and touches again count as added. RLIMIT_AS is no use: it counts mapped
weights. The core's memory guard should always refuse first: it checks before memory is touched.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from bespoke.errors import ConfigError
from bespoke.system.malloc import release_free_memory

__all__ = ["KINDS", "ChildGroup", "Limit", "LimitKind", "enforce_limit", "make_child_group"]

LimitKind = Literal["cgroup2", "cgroup1", "rlimit_data", "none"]
KINDS: tuple[LimitKind, ...] = ("cgroup2", "cgroup1", "rlimit_data")
_PREFIX = "bespoke_limit_"
_numbers = itertools.count(1)  # a number for each group that this process creates for a child


@dataclasses.dataclass
class Limit:
    """A limit in force. `lift()` ends it and removes its cgroup; so does a normal exit of the process."""

    kind: LimitKind
    added_bytes: int
    _folder: Path | None = None
    _home: Path | None = None
    _soft_before: int | None = None

    def lift(self) -> None:
        if self._folder is not None and self._home is not None:
            with contextlib.suppress(OSError):
                _write(self._home / "cgroup.procs", os.getpid())
                self._folder.rmdir()
            self._folder = None
        if self._soft_before is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (self._soft_before, resource.getrlimit(resource.RLIMIT_DATA)[1]))
            self._soft_before = None


def enforce_limit(added_bytes: int, kinds: Sequence[LimitKind] = KINDS) -> Limit:
    """Limit the memory that this process may add to `added_bytes` from now on; returns the limit in force.

    Freed memory that malloc holds is given back first, since it would be a hidden allowance. The first of `kinds` that the
    system allows is used. The limit's kind is "none" if it allows none. Raises ConfigError unless added_bytes > 0.
    """
    if added_bytes <= 0:
        raise ConfigError(
            "memory limit", got=str(added_bytes), expected="more than 0 bytes", next_step="Give the bytes to be added"
        )
    release_free_memory()
    for kind in kinds:
        limit = _limit_data(added_bytes) if kind == "rlimit_data" else _enter_cgroup(kind, added_bytes)
        if limit is not None:
            atexit.register(limit.lift)
            return limit
    return Limit("none", added_bytes)


def _enter_cgroup(kind: LimitKind, added_bytes: int, proc: Path = Path("/proc/self")) -> Limit | None:
    home = _own_cgroup(kind, proc)
    if home is None:
        return None
    for folder in _new_groups(kind, home, added_bytes, str(os.getpid())):
        try:
            _write(folder / "cgroup.procs", os.getpid())
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        return Limit(kind, added_bytes, folder, home)
    return None


def _new_groups(kind: LimitKind, home: Path, limit_bytes: int, name: str) -> Iterator[Path]:
    """Yield new groups with this limit until the caller can use one: the first may not let a process in."""
    # In version 2 a group that has processes cannot delegate the memory controller, so a sibling is tried as well.
    for base in (home,) if kind == "cgroup1" else (home, home.parent):
        if kind == "cgroup2" and "memory" not in _words(base / "cgroup.subtree_control"):
            continue
        _sweep(base)

        folder = base / f"{_PREFIX}{name}"
        try:
            folder.mkdir()
            if kind == "cgroup1":
                _write(folder / "memory.limit_in_bytes", limit_bytes)
                swap = folder / "memory.memsw.limit_in_bytes"
            else:
                _write(folder / "memory.max", limit_bytes)
                swap = folder / "memory.swap.max"
            with contextlib.suppress(OSError):  # absent where the kernel does not count swap
                _write(swap, limit_bytes if kind == "cgroup1" else 0)
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        yield folder


@dataclasses.dataclass(frozen=True)
class ChildGroup:
    """A cgroup for a child, which enters it by writing its process id to `folder`/cgroup.procs."""

    kind: LimitKind
    folder: Path

    def kills(self) -> int:
        """Number of processes that the system has killed for going over the limit."""
        lines = _lines(self.folder / ("memory.oom_control" if self.kind == "cgroup1" else "memory.events"))
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def remove(self) -> None:
        """Remove the group after the child has ended. The kernel may need a moment to uncount its last pages."""
        for _ in range(50):
            try:
                self.folder.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)


def make_child_group(limit_bytes: int) -> ChildGroup | None:
    """A cgroup in which a child may hold `limit_bytes`, file pages included; None if the system allows none."""
    kinds: tuple[LimitKind, ...] = ("cgroup2", "cgroup1")
    for kind in kinds:
        home = _own_cgroup(kind, Path("/proc/self"))
        if home is not None:
            for folder in _new_groups(kind, home, limit_bytes, f"{os.getpid()}_{next(_numbers)}"):
                return ChildGroup(kind, folder)
    return None


def _limit_data(added_bytes: int) -> Limit | None:
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        now = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        if now is None:
            return None
        wanted = int(now[1]) * 1024 + added_bytes
        if hard != resource.RLIM_INFINITY and wanted > hard:
            return None
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    except (ImportError, OSError, ValueError):
        return None
    return Limit("rlimit_data", added_bytes, _soft_before=soft)


def _own_cgroup(kind: LimitKind, proc: Path) -> Path | None:
    """Folder of this process's group in the hierarchy of the memory controller."""
    path = None
    for line in _lines(proc / "cgroup"):
        number, controllers, name = line.split(":", 2)
        if (kind == "cgroup2" and number == "0" and not controllers) or (
            kind == "cgroup1" and "memory" in controllers.split(",")
        ):
            path = name
    if path is None:
        return None

    for line in _lines(proc / "mountinfo"):
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        system, _, options = after.split(" ", 2)
        if system != ("cgroup2" if kind == "cgroup2" else "cgroup"):
            continue
        if kind == "cgroup1" and "memory" not in options.split(","):
            continue
        inside = path.removeprefix(root) if root != "/" else path  # a container sees its part of the tree as the root
        folder = Path(mount) / inside.lstrip("/")
        if folder.is_dir():
            return folder
    return None


def _sweep(base: Path) -> None:
    """Remove groups of processes that were killed and could not do it themselves."""
    for folder in base.glob(f"{_PREFIX}*"):
        owner, child, _ = folder.name.removeprefix(_PREFIX).partition("_")
        if owner.isdigit() and ((int(owner) == os.getpid() and not child) or not Path(f"/proc/{owner}").exists()):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _write(path: Path, value: int) -> None:
    with path.open("w") as file:
        file.write(str(value))
