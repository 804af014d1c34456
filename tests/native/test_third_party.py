# SPDX-License-Identifier: Apache-2.0
"""Sources of others in the core: those that sources.json pins and no other, with their licences; nothing of them is exported."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.third_party import FOLDER, SOURCES

OURS = {"CMakeLists.txt", "sources.json", "sodium_memory.c"}
THEIRS = r"\b(sqlite3|crypto_|sodium_|_?ge25519|sc25519|Sha256|SHA256|CPU_|z7_|utf8proc)|nlohmann"


def test_every_file_is_pinned_and_has_the_bytes_that_were_pinned() -> None:
    found = {str(path.relative_to(FOLDER)): path for path in FOLDER.rglob("*") if path.is_file()}
    pinned = {
        f"{folder}/{name}": sha256 for folder, source in SOURCES.items() for name, sha256 in source["files"].items()
    }
    assert set(found) == set(pinned) | OURS
    assert {name: hashlib.sha256(found[name].read_bytes()).hexdigest() for name in pinned} == pinned


@pytest.mark.parametrize("folder", SOURCES)
def test_a_source_says_whence_it_comes(folder: str) -> None:
    source = SOURCES[folder]
    assert source["origin"].startswith("https://")
    assert re.fullmatch(r"[0-9a-f]{64}", source["sha256"] or "") or re.search(r"\b[0-9a-f]{64}\b", source["published"])
    assert source["licence_file"] in source["files"]


def test_versions_are_those_of_the_sources() -> None:
    def defined(name: str, file: str) -> str:
        found = re.search(rf"#define\s+{name}\s+\"?([\w.]+)", (FOLDER / file).read_text(encoding="utf-8"))
        assert found is not None, name
        return found[1]

    header = "json/single_include/nlohmann/json.hpp"
    parts = [defined(f"NLOHMANN_JSON_VERSION_{part}", header) for part in ("MAJOR", "MINOR", "PATCH")]
    assert ".".join(parts) == SOURCES["json"]["version"]
    parts = [defined(f"UTF8PROC_VERSION_{part}", "utf8proc/utf8proc.h") for part in ("MAJOR", "MINOR", "PATCH")]
    assert ".".join(parts) == SOURCES["utf8proc"]["version"]
    assert defined("SQLITE_VERSION", "sqlite/sqlite3.h") == SOURCES["sqlite"]["version"]
    assert hashlib.sha3_256((FOLDER / "sqlite/sqlite3.c").read_bytes()).hexdigest() in SOURCES["sqlite"]["published"]


def test_nothing_of_them_is_exported_or_taken_from_the_system(native_build: Path) -> None:
    library = native_build / "libbespoke_core.so"
    if shutil.which("nm") is None or shutil.which("readelf") is None:
        pytest.skip("needs nm and readelf")
    dynamic = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    assert "bespoke_open" in dynamic or "bespoke_" in dynamic
    assert [line for line in dynamic.splitlines() if re.search(THEIRS, line)] == []
    within = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    assert re.search(r" t sqlite3_open_v2\b", within)  # the pattern finds what it looks for
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libbespoke_core.so" in needed
    assert not re.search(r"NEEDED.*(sqlite|sodium|utf8proc)", needed)


def test_each_licence_is_installed_with_the_core(native_build: Path, tmp_path: Path) -> None:
    subprocess.run(["cmake", "--install", native_build, "--prefix", tmp_path], capture_output=True, check=True)
    for folder, source in SOURCES.items():
        (installed,) = tmp_path.rglob(f"licences/{folder}.txt")
        assert installed.read_bytes() == (FOLDER / folder / source["licence_file"]).read_bytes()
