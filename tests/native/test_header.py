# SPDX-License-Identifier: Apache-2.0
"""The headers of the C API: what compilers of C, C++ and Objective-C say of them, and the layout that version 1.0 froze."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.c_layout import KEPT, layout
from tests.support import c_header

# All warnings, but for padding within structs and for what other versions of C and C++ would say.
WARNINGS = (
    "-Weverything",
    "-Wno-padded",
    "-Wno-c++98-compat",
    "-Wno-c++98-compat-pedantic",
    "-Werror",
    "-fsyntax-only",
)
USE = "int main(void) { return bespoke_api_version() == 0; }\n"


@pytest.mark.parametrize("clang", ["clang", "clang-22"])
@pytest.mark.parametrize("language", ["c", "c++", "objective-c"])
def test_clang_warns_of_nothing(language: str, clang: str, tmp_path: Path) -> None:
    standard = {"c": "c11", "c++": "c++17", "objective-c": "c11"}[language]
    compiled(tmp_path, language, f'#include "bespoke.h"\n{USE}', f"-std={standard}", clang=clang)


def test_clang_imports_the_module_without_a_warning(tmp_path: Path) -> None:
    """The system's own headers have no modules on Linux, as they have on Apple's systems."""
    module = f"-fmodule-map-file={c_header.INCLUDE / 'module.modulemap'}"
    flags = ("-fmodules", f"-fmodules-cache-path={tmp_path / 'cache'}", module, "-Wno-non-modular-include-in-module")
    compiled(tmp_path, "objective-c", f"@import CBespoke;\n{USE}", *flags)


def compiled(folder: Path, language: str, text: str, *flags: str, clang: str = "clang") -> None:
    if shutil.which(clang) is None:
        pytest.skip(f"{clang} is not installed")
    source = folder / "client"
    source.write_text(text)
    command = [clang, "-x", language, *WARNINGS, "-I", c_header.INCLUDE, *flags, source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_layout_is_the_frozen_one(compiler: str) -> None:
    """A struct that grows changes lines here. Look that it grew at its end, then write the file again:

    python -m tests.native.c_layout > bindings/native/include/layout.txt
    """
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    assert layout(compiler) == KEPT.read_text()


def test_a_status_that_is_dropped_is_a_warning(tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    source = tmp_path / "client.c"
    source.write_text('#include "bespoke.h"\nvoid close_it(bespoke_model *model) { bespoke_close(model, 0, NULL); }\n')
    command = ["clang", "-std=c11", "-fsyntax-only", "-Werror=unused-result", "-I", c_header.INCLUDE, source]
    assert "warn_unused_result" in subprocess.run(command, capture_output=True, text=True).stderr
