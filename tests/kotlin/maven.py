# SPDX-License-Identifier: Apache-2.0
"""Maven in the binding's folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conftest import REPOSITORY

BINDING = REPOSITORY / "bindings" / "kotlin"
SAMPLE = REPOSITORY / "sample_apps" / "android"


def mvn(*arguments: str, quiet: bool = True) -> str:
    """What it said."""
    command = ["mvn", "-B", *(["-q"] if quiet else []), *arguments]
    done = subprocess.run(command, cwd=BINDING, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


def dependency(artifact: str, folder: Path) -> Path:
    """group:artifact:version as a jar in this folder."""
    mvn("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}", "-N")
    _, name, version = artifact.split(":")
    return folder / f"{name}-{version}.jar"
