# SPDX-License-Identifier: Apache-2.0
"""Packages that are installed as pip would leave them, in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, package: str, entry_points: Mapping[str, str], modules: Mapping[str, str]) -> Path:
    """`modules` (name -> source) and their entry points (name -> module). The folder goes onto sys.path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    about = folder / f"{package.replace('-', '_')}-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    lines = "".join(f"{name} = {module}\n" for name, module in entry_points.items())
    (about / "entry_points.txt").write_text(f"[bespoke]\n{lines}")
    return folder
