# SPDX-License-Identifier: Apache-2.0
"""Examines what this machine has, what it lacks, and what that means for building and training. Changes nothing.

It tries things instead of reading version numbers: it switches on WAL in a real folder and sets a memory limit in a child process.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from bespoke.core import Core, find
from bespoke.version import __version__

__all__ = ["Finding", "examine"]

Status = Literal["ok", "missing", "limited"]


@dataclass(frozen=True)
class Finding:
    """The result of one check. `means` is empty if all is well. `required`: nothing trains here without it."""

    name: str
    status: Status
    found: str
    means: str = ""
    next_step: str = ""
    required: bool = False


# Package, the extra that installs it, and what does not work without it.
_PACKAGES = (
    ("transformers", "build", "chat templates and golden vectors need it while a bundle is built; training does not"),
    ("jinja2", "build", "a model with a chat template cannot be built"),
    ("peft", "peft", "exported adapters are written without it, but nothing here can load one to compare"),
    ("matplotlib", "plot", "inspect --plot and train --plot cannot draw"),
    ("cryptography", "sign", "bundles can be neither signed nor checked by key; a pinned sha256 still works"),
    ("executorch", "executorch", "bundles cannot be compiled for the device core; the core itself runs without it"),
    ("mlx", "mlx", "bundles cannot be compiled for MLX"),
)


def examine(state: Path | None = None) -> list[Finding]:
    """Returns the results of all checks, the basic ones first. `state` is a folder to try SQLite in."""
    return list(_findings(state))


def _findings(state: Path | None) -> Iterator[Finding]:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    yield Finding("python", "ok", f"{platform.python_version()} on {machine}")
    yield Finding("bespoke-sdk", "ok", __version__)
    core = find()
    yield _torch()
    for package, extra, means in _PACKAGES:
        yield _package(package, extra, means)
    yield _core(core)
    yield _compiler()
    yield _trust()
    yield from _memory()
    yield _limit()
    yield _database(state)
    yield _plugins()


def _torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        means = (
            "Bundles that were compiled for the device core train, evaluate and answer without it. "
            "Nothing can be built, and a bundle for the target 'torch' alone cannot compute"
        )
        return Finding(
            "torch",
            "missing",
            f"not importable ({error})" if error.name != "torch" else "not installed",
            means,
            "pip install 'bespoke-sdk[torch]', or 'bespoke-sdk[build]' to build too",
        )
    if torch.cuda.is_available():
        return Finding("torch", "ok", f"{torch.__version__}, on {torch.cuda.get_device_name()}")
    return Finding("torch", "ok", f"{torch.__version__}, on the CPU with {torch.get_num_threads()} threads")


def _package(package: str, extra: str, means: str) -> Finding:
    try:
        return Finding(package, "ok", version(package))
    except PackageNotFoundError:
        return Finding(
            package, "missing", "not installed", means[0].upper() + means[1:], f"pip install 'bespoke-sdk[{extra}]'"
        )


def _core(core: Core) -> Finding:
    if core.path is None:
        means = "Bundles can be built and inspected, but no user's model can be opened: nothing trains or answers here"
        return Finding("device core", "missing", core.reason, means, core.next_step, required=True)
    files = [core.path, *core.path.parent.parent.glob("lib/libbespoke_core.so")]
    parts = [
        str(core.says.get("version", __version__)),
        f"{sum(file.stat().st_size for file in files) / 1e6:.1f} MB",
        f"instructions {core.says['instruction_set']}" if "instruction_set" in core.says else "",
        f"by {core.built['compiler']}" if "compiler" in core.built else "",
        f"for executorch {core.built['executorch']}"
        if core.built.get("executorch")
        else "without an engine of its own",
        f"and mlx {core.built['mlx']}" if core.built.get("mlx") else "",
        str(core.path),
    ]
    return Finding("device core", "ok", ", ".join(part for part in parts if part))


def _trust() -> Finding:
    """A reminder for everybody who ships bundles. It does not depend on this machine."""
    try:
        version("cryptography")
        by = "a pinned sha256 or a signature"
    except PackageNotFoundError:
        by = "a pinned sha256"
    return Finding(
        "bundles",
        "ok",
        f"known by {by}, where one is given; a bundle is code: on a device, require it "
        "(docs/how_to/sign_pin_and_ship.md)",
    )


def _compiler() -> Finding:
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            return Finding("C++ compiler", "ok", path)
    return Finding(
        "C++ compiler",
        "missing",
        "none of c++, g++, clang++",
        "The device core cannot be compiled here; one that is installed works without",
        "Install one, for instance with apt-get install g++",
    )


def _memory() -> Iterator[Finding]:
    from bespoke.system.footprint import can_measure
    from bespoke.system.guard import KernelPeak

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [size for size in map(_number, _CGROUP_FILES) if size is not None and size < total]
    room = f", of which this container may use {min(limits) / 1e9:.1f} GB" if limits else ""
    yield Finding("memory", "ok", f"{total / 1e9:.1f} GB{room}")
    if not can_measure():
        yield Finding(
            "memory measurement",
            "limited",
            "no /proc",
            "Reports show 0 for measured memory, and the budget is held against estimates only",
        )
        return
    peak = KernelPeak()
    if peak.available:
        yield Finding("memory measurement", "ok", "/proc/self/status, peaks by the kernel")
    else:
        yield Finding(
            "memory measurement",
            "limited",
            "/proc/self/status",
            "Peaks within one call may be missed: the kernel keeps its mark",
        )
    peak.close()


_CGROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _limit() -> Finding:
    code = "from bespoke.system.limits import enforce_limit; print(enforce_limit(10**9).kind)"
    try:
        kind = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        kind = f"not tried ({error})"
    if kind in ("cgroup1", "cgroup2", "rlimit_data"):
        return Finding("memory limit", "ok", f"enforced by {kind}")
    return Finding(
        "memory limit",
        "limited",
        kind or "none",
        "The budget is held by our own questions alone: the system cannot be made to enforce one on a child process",
    )


def _database(state: Path | None) -> Finding:
    where = "a temporary folder" if state is None else str(state)
    try:
        # A folder that does not exist yet will be on the disk of its nearest existing parent.
        nearest = (
            None
            if state is None
            else next(path for path in (state.absolute(), *state.absolute().parents) if path.exists())
        )
        with tempfile.TemporaryDirectory(dir=nearest) as folder:
            database = sqlite3.connect(Path(folder) / "try.sqlite")
            mode = database.execute("PRAGMA journal_mode = wal").fetchone()[0]
            database.close()
    except (OSError, sqlite3.Error) as error:
        return Finding(
            "sqlite",
            "missing",
            f"{sqlite3.sqlite_version}; {where}: {error}",
            "No state can be kept there",
            "Choose a writable folder on a local disk with --state",
            required=True,
        )
    if mode != "wal":
        return Finding(
            "sqlite",
            "missing",
            f"{sqlite3.sqlite_version}; journal mode '{mode}' in {where}",
            "No state can be kept there: it needs WAL",
            "Choose a folder on a local disk, not on a network",
            required=True,
        )
    return Finding("sqlite", "ok", f"{sqlite3.sqlite_version}, WAL in {where}")


def _plugins() -> Finding:
    from bespoke.plugins import installed

    plugins = installed()
    broken = [plugin.name for plugin in plugins if plugin.problem is not None]
    if broken:
        return Finding(
            "plugins",
            "limited",
            f"{len(plugins)}, of which {', '.join(broken)} cannot be used",
            "Bundles that name them cannot be built here",
            "Run bespoke plugins to see why",
        )
    return Finding("plugins", "ok", ", ".join(plugin.name for plugin in plugins) or "none")
