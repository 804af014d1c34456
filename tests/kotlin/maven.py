# SPDX-License-Identifier: Apache-2.0
"""Maven in the binding's folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conftest import REPOSITORY

BINDING = REPOSITORY / "bindings" / "kotlin"
SAMPLE = REPOSITORY / "sample_apps" / "android"
# Of a call that takes what the fixture `compiled` has compiled: the compiler would compile all of it again.
COMPILED = ("-Dphase.of.compile=none", "-Dphase.of.test.compile=none")


def mvn(*arguments: str, quiet: bool = True) -> str:
    """What it said."""
    command = ["mvn", "-B", *(["-q"] if quiet else []), *arguments]
    done = subprocess.run(command, cwd=BINDING, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


def dependency(artifact: str, folder: Path) -> Path:
    """group:artifact:version as a jar: that of Maven's repository on this machine, else a copy in this folder."""
    group, name, version = artifact.split(":")
    jar = f"{name}-{version}.jar"
    here = Path.home().joinpath(".m2", "repository", *group.split("."), name, version, jar)
    if not here.exists():
        mvn("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}", "-N")
    return here if here.exists() else folder / jar
