# SPDX-License-Identifier: Apache-2.0
"""The engine over mlx-c, of which only the headers are here: it compiles against them, and calls what they declare."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bespoke_plugins.targets.mlx.records import VERSION
from tests.native.conftest import SOURCE

ENGINE = SOURCE / "src" / "engines" / "mlx_c" / "engine.cpp"
HEADERS = SOURCE / "third_party" / "mlx-c"


@pytest.mark.skipif(shutil.which("g++") is None or shutil.which("nm") is None, reason="needs g++ and nm")
def test_it_compiles_and_calls_functions_of_the_headers(tmp_path: Path) -> None:
    compiled = tmp_path / "engine.o"
    folders = [f"-I{SOURCE / 'src'}", f"-I{SOURCE / 'include'}", "-isystem", str(HEADERS)]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", *folders]
    subprocess.run(["g++", *flags, "-c", str(ENGINE), "-o", str(compiled)], check=True)
    symbols = subprocess.run(["nm", "-u", str(compiled)], capture_output=True, text=True, check=True).stdout
    called = set(re.findall(r"\bmlx_\w+", symbols))
    declared = set(
        re.findall(r"\b(mlx_\w+)\(", "".join(path.read_text(encoding="utf-8") for path in HEADERS.rglob("*.h")))
    )
    assert "mlx_imported_function_apply" in called
    assert called <= declared
    assert (
        "bespoke_engine_module"
        in subprocess.run(["nm", str(compiled)], capture_output=True, text=True, check=True).stdout
    )


def test_it_reads_the_files_of_the_target() -> None:
    assert f'kVersion = "{VERSION}"' in ENGINE.read_text(encoding="utf-8")
