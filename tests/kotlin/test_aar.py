# SPDX-License-Identifier: Apache-2.0
"""The AARs of the modules: what Gradle would read in them, and that no library of another system passes for one of Android's."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.kotlin.maven import BINDING
from tests.kotlin.packed import TOOLS, run, tool

pytestmark = [pytest.mark.kotlin, pytest.mark.usefixtures("compiled")]
COMPILERS = {"arm64-v8a": "aarch64-linux-gnu-gcc", "x86_64": "gcc"}
PAGED = "-Wl,-z,max-page-size=16384"


def library(folder: Path, abi: str, *flags: str, name: str = "libbespoke_core.so") -> Path:
    (folder / abi).mkdir(parents=True, exist_ok=True)
    source = folder / "one.c"
    source.write_text("#include <stdlib.h>\nvoid *bespoke_nothing(void) { return malloc(1); }\n")
    run(COMPILERS[abi], "-shared", "-fPIC", *flags, source, "-o", folder / abi / name)
    return folder / abi


def as_aar(module: str, out: Path, **libraries: Path) -> Path:
    given = [
        word for abi, folder in libraries.items() for word in ("--lib", f"{abi.replace('arm64', 'arm64-v8a')}={folder}")
    ]
    return Path(tool("aar.py", BINDING / module, out, *given).strip())


def refused(module: str, out: Path, *arguments: object) -> str:
    command = [sys.executable, TOOLS / "aar.py", BINDING / module, out, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode != 0
    assert not list(out.glob("*.aar"))
    return done.stderr


@pytest.mark.parametrize("module", ["core", "android", "delivery", "federation"])
def test_it_holds_what_gradle_reads(module: str, tmp_path: Path) -> None:
    aar = as_aar(module, tmp_path)
    assert aar.name == f"bespoke-{module}-0.1.0.aar"
    with zipfile.ZipFile(aar) as archive:
        assert archive.namelist() == ["AndroidManifest.xml", "classes.jar", "proguard.txt", "R.txt"]
        assert archive.read("proguard.txt") == (BINDING / module / "consumer-rules.pro").read_bytes()
        assert (
            archive.read("AndroidManifest.xml")
            == (BINDING / module / "src" / "main" / "AndroidManifest.xml").read_bytes()
        )
        with zipfile.ZipFile(io.BytesIO(archive.read("classes.jar"))) as jar:
            classes = {name for name in jar.namelist() if name.endswith(".class")}
    compiled = BINDING / module / "target" / "classes"
    assert classes == {path.relative_to(compiled).as_posix() for path in compiled.rglob("*.class")}
    assert not any("Test" in name for name in classes)


def test_the_same_files_make_the_same_aar(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert as_aar("core", one).read_bytes() == as_aar("core", other).read_bytes()


def test_libraries_for_glibc_give_it_a_name_that_says_so(tmp_path: Path) -> None:
    folders = {abi: library(tmp_path, abi, PAGED) for abi in COMPILERS}
    aar = as_aar("core", tmp_path, arm64=folders["arm64-v8a"], x86_64=folders["x86_64"])
    assert aar.name == "bespoke-core-0.1.0-glibc-standin.aar"
    with zipfile.ZipFile(aar) as archive:
        for abi, folder in folders.items():
            assert archive.read(f"jni/{abi}/libbespoke_core.so") == (folder / "libbespoke_core.so").read_bytes()


def test_libraries_without_glibc_are_taken_for_androids(tmp_path: Path) -> None:
    assert (
        as_aar("core", tmp_path, x86_64=library(tmp_path, "x86_64", PAGED, "-nostdlib")).name
        == "bespoke-core-0.1.0.aar"
    )


def test_pages_of_4_kb_are_refused(tmp_path: Path) -> None:
    folder = library(tmp_path, "x86_64", "-Wl,-z,max-page-size=4096")
    said = refused("core", tmp_path, "--lib", f"x86_64={folder}")
    assert "aligned to 4096 bytes; expected 16384" in said
    assert "max-page-size" in said


def test_a_foreign_library_of_4_kb_pages_may_stand_in_but_not_ship(tmp_path: Path) -> None:
    stands_in = library(tmp_path / "one", "x86_64", "-Wl,-z,max-page-size=4096", name="libexecutorch.so")
    assert as_aar("core", tmp_path, x86_64=stands_in).name.endswith("-glibc-standin.aar")
    (tmp_path / "bespoke-core-0.1.0-glibc-standin.aar").unlink()
    ships = library(tmp_path / "two", "x86_64", "-Wl,-z,max-page-size=4096", "-nostdlib", name="libexecutorch.so")
    assert "expected 16384" in refused("core", tmp_path, "--lib", f"x86_64={ships}")


def test_a_library_for_another_processor_is_refused(tmp_path: Path) -> None:
    folder = library(tmp_path, "x86_64", PAGED)
    assert "got a library for x86_64; expected one for arm64-v8a" in refused(
        "core", tmp_path, "--lib", f"arm64-v8a={folder}"
    )


def test_a_path_of_the_machine_that_built_it_is_refused(tmp_path: Path) -> None:
    folder = library(tmp_path, "x86_64", PAGED, "-nostdlib", "-Wl,-rpath,/home/someone/lib")
    assert "/home/someone/lib" in refused("core", tmp_path, "--lib", f"x86_64={folder}")


def test_a_library_is_opened_again_only_if_it_has_changed(tmp_path: Path) -> None:
    def write(text: bytes) -> None:
        jar = io.BytesIO()
        with zipfile.ZipFile(jar, "w") as classes:
            classes.writestr("one/One.class", text)
        with zipfile.ZipFile(tmp_path / "aar" / "one.aar", "w") as archive:
            archive.writestr("classes.jar", jar.getvalue())

    (tmp_path / "aar").mkdir()
    opened = tmp_path / "classes" / "one" / "One.class"
    write(b"first")
    tool("explode.py", tmp_path)
    assert opened.read_bytes() == b"first"
    opened.write_bytes(b"of the first call")
    tool("explode.py", tmp_path)
    assert opened.read_bytes() == b"of the first call"
    write(b"other")
    tool("explode.py", tmp_path)
    assert opened.read_bytes() == b"other"
