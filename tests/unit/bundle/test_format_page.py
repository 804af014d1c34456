# SPDX-License-Identifier: Apache-2.0
"""The format's page: its reader is standard library alone, short, reads a bundle and refuses a damaged one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bespoke.bundle.manifest_schema import manifest_schema
from tests.conftest import REPOSITORY
from tests.unit.bundle.example import groups, write_example

PAGE = REPOSITORY / "docs" / "reference" / "bundle_format.md"


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "read_bundle.py").write_text(code)
    return tmp_path / "read_bundle.py"


def run(reader: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-I", "-S", reader, folder], capture_output=True, text=True, check=False)


def test_the_reader_is_short_and_needs_only_the_standard_library(reader: Path) -> None:
    code = reader.read_text()
    assert len([line for line in code.splitlines() if line.strip()]) <= 50
    imported = {
        alias.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import) for alias in node.names
    }
    assert imported <= sys.stdlib_module_names
    assert "from " not in code.split("WIDTH")[0]


def test_it_lists_every_tensor_and_checks_every_file(reader: Path, tmp_path: Path) -> None:
    folder = write_example(tmp_path / "a.bundle")
    done = run(reader, folder)
    assert (done.returncode, done.stderr) == (0, "")
    for name, arrays in groups().items():
        assert f"{name}: " in done.stdout
        for tensor, array in arrays.items():
            assert re.search(rf"{re.escape(tensor)} +\w+ +{re.escape(str(list(array.shape)))}", done.stdout)
    assert done.stdout.count("sound") == sum(path.is_file() for path in folder.rglob("*")) - 2


@pytest.mark.parametrize("damage", ["byte", "size", "link", "missing", "manifest"])
def test_it_refuses_damage(reader: Path, tmp_path: Path, damage: str) -> None:
    folder = write_example(tmp_path / "a.bundle")
    path = folder / "weights" / "block_00.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    if damage == "byte":
        path.write_bytes(data)
    elif damage == "manifest":
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(text.replace("block_00", "block_01", 1))
    elif damage == "size":
        path.write_bytes(data + b"\0")
    else:
        path.rename(tmp_path / "outside")
        if damage == "link":
            path.symlink_to(tmp_path / "outside")
    done = run(reader, folder)
    assert done.returncode != 0
    assert ("manifest" if damage == "manifest" else "block_00") in done.stderr


def test_the_page_fits_on_one_screen_above_the_reader() -> None:
    assert len(PAGE.read_text().split("## Read one")[0].splitlines()) <= 60


def test_the_manifest_page_is_the_schema() -> None:
    """`docs/reference/manifest.md` is written by `bespoke.bundle.manifest_page`; run it after a change."""
    from bespoke.bundle.manifest_page import manifest_page

    page = REPOSITORY / "docs" / "reference" / "manifest.md"
    assert page.read_text() == manifest_page(manifest_schema())
