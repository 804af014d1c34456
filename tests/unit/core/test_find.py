# SPDX-License-Identifier: Apache-2.0
"""Where the core is, and why it is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bespoke.core
from bespoke.core import find


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the installed package's."""
    monkeypatch.delenv("BESPOKE_CORE", raising=False)
    monkeypatch.setattr(bespoke.core, "__path__", [str(tmp_path / "sources"), str(tmp_path / "built")])
    (tmp_path / "built" / "bin").mkdir(parents=True)
    return tmp_path / "built"


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_core_says_what_it_is(fake_core: Path) -> None:
    core = find()
    assert core.path == fake_core
    assert core.says == {"version": "9.9", "instruction_set": "avx2"}


def test_the_core_of_an_editable_install_is_found_next_to_the_sources(package: Path) -> None:
    path = script(package / "bin" / "bespoke-core", """echo '{"event": "report", "report": {"version": "1"}}'""")
    (package / "bin" / "core.json").write_text('{"executorch": "1.5.1"}')
    core = find()
    assert (core.path, core.built, core.says) == (path, {"executorch": "1.5.1"}, {"version": "1"})


def test_none_was_built(package: Path) -> None:
    core = find()
    assert core.path is None
    assert "was not compiled" in core.reason
    assert "apt-get install" in core.next_step
    (package / "not_built.txt").write_text("no C++ compiler was found\n")
    assert find().reason == "no C++ compiler was found"


def test_a_library_of_executorch_is_missing(package: Path) -> None:
    script(
        package / "bin" / "bespoke-core",
        "echo 'bespoke-core: error while loading shared libraries: libexecutorch.so: cannot open shared object file' >&2; exit 127",
    )
    core = find()
    assert core.path is None
    assert "libexecutorch.so" in core.reason
    assert core.next_step == "Install bespoke-sdk again"


def test_another_library_is_missing(package: Path) -> None:
    said = "bespoke-core: error while loading shared libraries: libgomp.so.1: cannot open shared object file"
    script(package / "bin" / "bespoke-core", f"echo '{said}' >&2; exit 127")
    assert "libgomp.so.1" in find().next_step


@pytest.mark.parametrize("text", ["kill -ILL $$", "echo Illegal >&2; exit 4", "exit 0"])
def test_a_core_that_does_not_start_is_none(package: Path, text: str) -> None:
    script(package / "bin" / "bespoke-core", text)
    core = find()
    assert core.path is None
    assert "does not start" in core.reason


def test_a_file_that_is_no_program_is_none(package: Path) -> None:
    (package / "bin" / "bespoke-core").write_bytes(b"\x7fELF no program")
    (package / "bin" / "bespoke-core").chmod(0o755)
    assert "cannot be started" in find().reason


def test_finding_imports_neither_torch_nor_numpy() -> None:
    program = "import sys, bespoke.core; bespoke.core.find(); print(*sorted({'torch', 'numpy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert found == []
