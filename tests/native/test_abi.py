# SPDX-License-Identifier: Apache-2.0
"""The border of bespoke.h between builds: what the library exports, and clients and libraries whose structs have grown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.native.c_border import CHECKS, signed
from tests.native.conftest import SOURCE, compile_core
from tests.native.core_lab import tiny_core_bundle
from tests.support import c_header
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["signed", "tiny_core_bundle"]

STRUCT = re.compile(r"typedef struct bespoke_(\w+) \{\n  size_t struct_size;.*?\n\} bespoke_\1;", re.DOTALL)


def library_of(build: Path) -> Path:
    return build / "libbespoke_core.so"


def test_the_library_exports_the_functions_of_the_header_and_nothing_else(native_build: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library_of(native_build)], capture_output=True, text=True, check=True
    )
    assert {line.split()[-1] for line in listed.stdout.splitlines()} == c_header.functions()
    assert len(c_header.functions()) > 10


@pytest.fixture(scope="module")
def grown_header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The headers of a later version: each struct that says its size has one more number, and what keeps padding from its end."""
    folder = tmp_path_factory.mktemp("grown")
    grown = lambda found: found[0].replace("\n} bespoke", "\n  int32_t later, reserved_later;\n} bespoke")  # noqa: E731
    grew = 0
    for name in c_header.HEADERS:
        text, count = STRUCT.subn(grown, (c_header.INCLUDE / name).read_text())
        (folder / name).write_text(f"#ifndef BESPOKE_TEST_OF_GROWTH\n#define BESPOKE_TEST_OF_GROWTH\n#endif\n{text}")
        grew += count
    assert grew >= 7
    return folder / "bespoke.h"


def client(header: Path, library: Path, program: Path) -> Path:
    """The checks of c_border.c, compiled with a header and linked with a library."""
    sources = sorted((SOURCE / "tests").glob("c_border*.c"))
    flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O1", "-w", "-I", header.parent, f"-Wl,-rpath,{library.parent}"]
    command = ["cc", *flags, *sources, "-o", program, library]
    subprocess.run(command, check=True)
    return program


def run_all(program: Path, bundle: Path, known_by: dict[str, str], place: Path) -> None:
    with PersonalModel.open(bundle, place / "state") as model:
        add_numbers(model)
    for check in CHECKS:
        state = place / check
        shutil.copytree(place / "state", state)
        done = subprocess.run(
            [program, check, bundle, state], capture_output=True, text=True, env={**os.environ, **known_by}
        )
        assert done.returncode == 0, (check, done.stderr)


@pytest.mark.slow
def test_a_client_of_a_later_header_runs_with_this_library(
    native_build: Path, grown_header: Path, signed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    run_all(client(grown_header, library_of(native_build), tmp_path / "client"), *signed, tmp_path)


@pytest.mark.slow
def test_a_client_of_this_header_runs_with_a_later_library(
    grown_header: Path, signed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    flags = [
        f"-DCMAKE_CXX_FLAGS=-include {grown_header}",
        "-DCMAKE_BUILD_TYPE=Release",
    ]  # what is in C has headers of its own
    build = compile_core("grown", *flags, targets=["bespoke_core"], tests=False)
    run_all(client(c_header.INCLUDE / "bespoke.h", library_of(build), tmp_path / "client"), *signed, tmp_path)
