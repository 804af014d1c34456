# SPDX-License-Identifier: Apache-2.0
"""A memory limit that the kernel enforces, so that "stays within the budget" is shown and not claimed.

A child process calls `enforce_limit(added_bytes)` when its imports are done; from then on it may add so many bytes to
what it holds. The first that works is taken:

- `cgroup2`, `cgroup1` count pages first touched after the call: anonymous, shared memory, page tables. File pages count
  too, but clean ones are dropped and dirty ones written back before anything else happens. Counting goes in lots of
  256 KiB a CPU. Going over is SIGKILL.
- `rlimit_data` counts addresses, touched or not, of private writable maps: heap, arrays, 8 MiB for the stack of each
  later thread; not shared maps, not mapped files. Going over fails the allocation: MemoryError, or torch's RuntimeError.
- `none`: the system offers neither; nothing is counted.

For a child that is another program, `make_child_group` makes the cgroup and the child enters it before it starts.

Pages that the process held before, gave back and touches again count as added in a cgroup. RLIMIT_AS is no use: it
counts mapped weights. In every case the core's memory guard should refuse first: it asks before memory is touched.
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
_numbers = itertools.count(1)  # of the groups that this process has made for its children


@dataclasses.dataclass
class Limit:
    """A limit in force. `lift()` ends it and removes its cgroup; a normal exit of the process does the same."""

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
    """From now on this process may add `added_bytes` to the memory it holds; says what enforces that.

    Memory that malloc holds free is given back first, so that it is not a hidden allowance. Of `kinds` the first that
    the system allows is used; kind "none" if it allows none of them. Raises ConfigError unless added_bytes > 0.
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
    for folder in _made_groups(kind, home, added_bytes, str(os.getpid())):
        try:
            _write(folder / "cgroup.procs", os.getpid())
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        return Limit(kind, added_bytes, folder, home)
    return None


def _made_groups(kind: LimitKind, home: Path, limit_bytes: int, name: str) -> Iterator[Path]:
    """Groups with this limit, one after the other, for as long as they are asked for: the first may not let a process in."""
    # In version 2 a group with processes in it cannot hand the memory controller down, so a sibling is tried as well.
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
    """A cgroup for one child, which enters it by writing its process id to `folder`/cgroup.procs."""

    kind: LimitKind
    folder: Path

    def kills(self) -> int:
        """How often the system has ended a process of it for going over the limit."""
        lines = _lines(self.folder / ("memory.oom_control" if self.kind == "cgroup1" else "memory.events"))
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def remove(self) -> None:
        """When the child has ended. Its last pages may take a moment to be counted off."""
        for _ in range(50):
            try:
                self.folder.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)


def make_child_group(limit_bytes: int) -> ChildGroup | None:
    """A cgroup in which a child may hold `limit_bytes`, file pages included; None where the system allows none."""
    kinds: tuple[LimitKind, ...] = ("cgroup2", "cgroup1")
    for kind in kinds:
        home = _own_cgroup(kind, Path("/proc/self"))
        if home is not None:
            for folder in _made_groups(kind, home, limit_bytes, f"{os.getpid()}_{next(_numbers)}"):
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
    """Folder of the group that this process is in, in the hierarchy of the memory controller."""
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
    """Removes the groups of processes that were killed and so could not do it themselves."""
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
