# SPDX-License-Identifier: Apache-2.0
"""Finds the compiled core and checks that it runs here. If it does not, says why and what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from bespoke.errors import MissingDependency

__all__ = ["Core", "find", "library_of"]

BINARY = "bespoke-core"
LIBRARY = "libbespoke_core.dylib" if sys.platform == "darwin" else "libbespoke_core.so"
OVERRIDE = "BESPOKE_CORE"  # path of another build, for developers of the core
# Installs the compiler on Debian.
SYSTEM_PACKAGES = "apt-get install g++"
_START_SECONDS = 30.0


@dataclass(frozen=True)
class Core:
    """The result of `find`. `path` is None if the core cannot run here; then `reason` and `next_step` say why and what to do."""

    path: Path | None
    reason: str = ""
    next_step: str = ""
    built: dict[str, Any] = field(default_factory=dict)  # core.json, written by the build: versions, compiler
    says: dict[str, Any] = field(default_factory=dict)  # the core's own report: version, instruction set

    @property
    def library(self) -> Path | None:
        """The library that the program loads. None: the core cannot run here."""
        return None if self.path is None else library_of(self.path)

    def required(self, subject: str = "The device core") -> Path:
        """Returns `path`. Raises MissingDependency if the core cannot run here. `subject` names what needs it."""
        if self.path is None:
            raise MissingDependency(subject, got=self.reason, expected="a core that runs", next_step=self.next_step)
        return self.path


def library_of(program: Path) -> Path:
    """Returns the library that the program loads. It is in `lib` of an install, and in the program's folder of a build."""
    installed = program.parent.parent / "lib" / LIBRARY
    return installed if installed.is_file() else program.parent / LIBRARY


def find() -> Core:
    """Returns the core that the variable BESPOKE_CORE names, else the one installed with this package. Never raises."""
    named = os.environ.get(OVERRIDE)
    if named:
        return (
            _probed(Path(named).absolute())
            if Path(named).is_file()
            else Core(
                None,
                f"{OVERRIDE} names {named}, where there is no file",
                f"Name a built {BINARY} in {OVERRIDE}, or unset it",
            )
        )

    package = sys.modules[__name__.rpartition(".")[0]]
    # An editable install has two folders: that of the sources and that of the build.
    folders = [Path(folder) for folder in package.__path__]
    for folder in folders:
        path = folder / "bin" / BINARY
        if path.is_file():
            return _probed(path)
    return Core(
        None,
        next(
            (why for folder in folders if (why := _not_built(folder))), "it was not compiled when bespoke was installed"
        ),
        f"Install a C++ compiler (on Debian: {SYSTEM_PACKAGES}), then install bespoke-sdk again with "
        "pip install --force-reinstall --no-deps",
    )


def _not_built(folder: Path) -> str:
    """The reason why the install did not compile it, as the build recorded it."""
    try:
        return (folder / "not_built.txt").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _probed(path: Path) -> Core:
    stat = path.stat()
    return _probe(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=8)
def _probe(path: Path, modified: int, size: int) -> Core:
    """Starts the core once, so that a missing library shows now and not in the middle of a run."""
    try:
        built = json.loads((path.parent / "core.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        built = {}

    try:
        done = subprocess.run(
            [path],
            input='{"verb": "version"}\n',
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_START_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Core(None, f"{path} cannot be started ({error})", "Install bespoke-sdk again for this machine", built)

    missing = re.search(r"error while loading shared libraries: ([^\s:]+)", done.stderr)
    if missing is not None:
        library = missing[1]
        owner = "bespoke-sdk again" if "executorch" in library else f"the package of your system that holds {library}"
        return Core(None, f"{path} is there, but not {library}", f"Install {owner}", built)
    if done.returncode < 0 or not done.stdout.strip():
        last_line = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return Core(
            None, f"{path} does not start: {last_line[0][:300]}", "Install bespoke-sdk again for this machine", built
        )
    return Core(path, built=built, says=_report_in(done.stdout))


def _report_in(text: str) -> dict[str, Any]:
    """The core's report on itself, from what it printed."""
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "report":
            return dict(event.get("report") or {})
    return {}  # an older core does not know the verb
