# SPDX-License-Identifier: Apache-2.0
"""The core's own size, stripped: what an app would carry, without and with ExecuTorch's libraries. And that of its kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.benchmarks.figures import this_machine, write_table
from tests.native.kernels_lab import compile_lab

from bespoke.core import find


@pytest.mark.benchmark
def test_size_of_the_core(tmp_path: Path) -> None:
    core = find()
    if core.path is None:
        pytest.skip(f"no device core: {core.reason}")
    if shutil.which("strip") is None or shutil.which("ldd") is None:
        pytest.skip("needs strip and ldd")
    libraries = loaded(core.path)
    ours = libraries.pop("libbespoke_core.so")
    engine = {name: path for name, path in libraries.items() if "executorch" in name}
    core_bytes = stripped(ours, tmp_path)
    engine_bytes = {name: stripped(path, tmp_path) for name, path in sorted(engine.items())}
    rows: list[list[str | float]] = [
        ["the core: `libbespoke_core.so`", core_bytes / 1e6],
        *([f"ExecuTorch: `{name}`", size / 1e6] for name, size in engine_bytes.items()),
        ["the core with ExecuTorch", (core_bytes + sum(engine_bytes.values())) / 1e6],
        ["the process for Python, not in an app: `bespoke-core`", stripped(core.path, tmp_path) / 1e6],
    ]
    note = "MB on disk, stripped, with SQLite in it. Of the system it takes the C++ runtime alone; neither Python nor torch."
    machine = f"{core.built.get('compiler', 'a compiler without a name')}, {this_machine()}"
    write_table("core_size", ("file", "MB"), rows, note, machine)
    assert core_bytes < 4e6


@pytest.mark.benchmark
def test_size_of_the_kernels(tmp_path: Path) -> None:
    rows: list[list[str | float]] = []
    versions = []
    for processor, compiler in (("x86-64", "g++"), ("arm64", "aarch64-linux-gnu-g++")):
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        versions.append(f"{processor} by {said.splitlines()[0]}")
        folder = tmp_path / processor
        folder.mkdir()
        compile_lab(folder, compiler, "-w")
        for path, objects in PATHS.items():
            files = [folder / f"{name}.o" for name in objects if (folder / f"{name}.o").exists()]
            if files:
                size = compiler.removesuffix("g++") + "size"
                rows.append([processor, path, sum(code_bytes(size, file) for file in files) / 1e3])
    note = f"KB of code and constants. Compiled with -O2: {', '.join(versions)}."
    write_table("kernel_size", ("processor", "path", "KB"), rows, note, machine="")


# What each path adds to a core, by the files that it is compiled from.
PATHS = {
    "sharing out work, for every path": ("linear", "head", "direct", "prepared", "vector", "elementwise", "attention"),
    "choosing a path": ("features", "dispatch", "processor"),
    "any processor": ("baseline",),
    "AVX2": ("avx2",),
    "AVX-512": ("avx512",),
    "AVX-512 VNNI, few rows and prompts of answers": ("avx512_vnni",),
    "AMX": ("amx",),
    "NEON": ("neon",),
    "NEON dotprod, few rows": ("neon_dot",),
    "NEON i8mm, `x W^T`": ("neon_i8mm",),
}


def code_bytes(size: str, compiled: Path) -> int:
    """Bytes of an object file that a program with it loads and never writes to."""
    said = subprocess.run([size, compiled], capture_output=True, text=True, check=True).stdout
    return int(said.splitlines()[1].split()[0])


def loaded(program: Path) -> dict[str, Path]:
    """Shared libraries of a program by name, as the loader finds them."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return {Path(path).name: Path(path).resolve() for path in re.findall(r"=> (/\S+)", said)}


def stripped(path: Path, folder: Path) -> int:
    copy = folder / path.name
    shutil.copyfile(path, copy)
    subprocess.run(["strip", "--strip-unneeded", copy], check=True)
    return copy.stat().st_size
