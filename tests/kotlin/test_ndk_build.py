# SPDX-License-Identifier: Apache-2.0
"""build_with_ndk.sh, as far as it goes without an NDK: shellcheck reads it, and it builds the same sources with a compiler for
glibc's arm64 and ExecuTorch's wheel for that. What it made trains under qemu, called as a JVM calls it. What an NDK makes is not
checked here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.kotlin.packed import TOOLS, run
from tests.native.arm64 import SYSTEM_ROOT, executorch_for_arm64
from tests.support.phone_fixture import NOTES

pytestmark = [pytest.mark.kotlin, pytest.mark.slow]
SCRIPT = REPOSITORY / "bindings" / "kotlin" / "build_with_ndk.sh"
TOOLCHAIN = """
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
"""
STEPS = 3


def script(*arguments: object, **environment: object) -> subprocess.CompletedProcess[str]:
    java = Path(shutil.which("javac") or "javac").resolve().parents[1]
    kept = {name: value for name, value in os.environ.items() if name not in ("ANDROID_NDK", "TOOLCHAIN", "OUT")}
    given = {**kept, "JAVA_HOME": str(java), **{name: str(value) for name, value in environment.items()}}
    return subprocess.run([str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, env=given)


@pytest.fixture(scope="module")
def executorch() -> Path:
    return executorch_for_arm64(REPOSITORY / "build" / "arm64_packages")


@pytest.fixture(scope="module")
def built(executorch: Path) -> Path:
    out = REPOSITORY / "build" / "ndk_standin"  # kept: what has not changed is not compiled again
    out.mkdir(parents=True, exist_ok=True)
    toolchain = out / "aarch64.cmake"
    toolchain.write_text(TOOLCHAIN, encoding="utf-8")
    done = script(executorch / "share" / "cmake", "arm64-v8a", OUT=out, TOOLCHAIN=toolchain)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "libraries for arm64-v8a, as expected" in done.stdout
    return out


def test_shellcheck_finds_nothing() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    run("shellcheck", SCRIPT)


def test_without_an_ndk_it_says_what_to_get(executorch: Path) -> None:
    done = script(executorch / "share" / "cmake")
    assert done.returncode != 0
    assert "ANDROID_NDK" in done.stderr
    assert script().returncode == 2


def test_another_executorch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "version.txt").write_text("0.7.0\n")
    toolchain = tmp_path / "any.cmake"
    toolchain.touch()
    done = script(tmp_path, OUT=tmp_path / "out", TOOLCHAIN=toolchain)
    assert done.returncode != 0
    assert "got ExecuTorch 0.7.0; expected 1.5.1" in done.stderr


def test_the_system_s_own_tool_reads_the_libraries_as_ours_does(built: Path) -> None:
    for name, exported in (("libbespoke_core.so", "bespoke_train"), ("libbespoke_jni.so", "JNI_OnLoad")):
        library = built / "arm64-v8a" / name
        headers = run("readelf", "-hlW", library)
        assert "AArch64" in headers
        assert {line.split()[-1] for line in headers.splitlines() if line.split()[:1] == ["LOAD"]} == {"0x4000"}
        symbols = [line.split() for line in run("readelf", "--dyn-syms", "-W", library).splitlines()]
        defined = {
            fields[7]
            for fields in symbols
            if len(fields) == 8 and fields[4] in ("GLOBAL", "WEAK") and fields[6].isdigit()
        }
        assert exported in defined
        assert all(one.startswith("bespoke_") or one == "JNI_OnLoad" for one in defined)


def test_what_cannot_be_shipped_is_refused(built: Path) -> None:
    check = [sys.executable, TOOLS / "check_libraries.py"]
    run(*check, "arm64-v8a", built / "arm64-v8a", "--glibc")
    for wrong, said in (
        (["arm64-v8a", built / "arm64-v8a"], "a library for glibc"),
        (["x86_64", built / "arm64-v8a", "--glibc"], "expected one for x86_64"),
        (["arm64-v8a", built, "--glibc"], "no such file"),
        (["arm64-v8a", built / "arm64-v8a", "--glibc", "--absent", "bespoke_train"], "a path of this machine"),
    ):
        done = subprocess.run(list(map(str, [*check, *wrong])), capture_output=True, text=True)
        assert done.returncode != 0, said
        assert said in done.stderr


def test_called_as_a_jvm_calls_it_it_trains_as_here(
    built: Path, executorch: Path, prepared: Path, tmp_path: Path
) -> None:
    java = Path(shutil.which("javac") or "javac").resolve().parents[1] / "include"
    host = tmp_path / "jni_host"
    source = REPOSITORY / "tests" / "kotlin" / "jni_host.cpp"
    run("aarch64-linux-gnu-g++", "-std=c++17", f"-I{java}", f"-I{java / 'linux'}", source, "-o", host, "-ldl")
    path = f"LD_LIBRARY_PATH={built / 'arm64-v8a'}:{executorch / 'lib'}"
    notes = [json.dumps({"text": note}) for note in NOTES]
    said = run(
        "qemu-aarch64-static",
        "-L",
        SYSTEM_ROOT,
        "-E",
        path,
        host,
        built / "arm64-v8a" / "libbespoke_jni.so",
        prepared / "chat.bundle",
        tmp_path / "state",
        *notes,
    )
    natives, instructions, report = said.splitlines()
    assert int(natives) >= 34
    assert instructions == "NEON"
    here = json.loads((prepared / "python.json").read_text())["losses"]
    assert json.loads(report)["losses"] == pytest.approx(here[:STEPS], rel=1e-5)  # other instructions round otherwise
