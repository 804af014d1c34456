# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's wheel for arm64, to compile and link the core against."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

SYSTEM_ROOT = Path("/usr/aarch64-linux-gnu")


def executorch_for_arm64(place: Path) -> Path:
    """The folder of the package, of the version that is installed here; downloaded once."""
    package = place / "executorch"
    if not package.is_dir():
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--platform",
            "manylinux_2_28_aarch64",
            "--dest",
            place,
            f"executorch=={version('executorch')}",
        ]
        subprocess.run(command, check=True)
        (wheel,) = place.glob("executorch-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place / "unpacked")
        (place / "unpacked" / "executorch").rename(package)
    return package
