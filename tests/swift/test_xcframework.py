# SPDX-License-Identifier: Apache-2.0
"""The recipe of the XCFramework, with stand-ins for CMake and Xcode: what it builds, and what it makes of it.

The library that it packs is tested on Linux (tests/native/test_c_example.py). No Mac has run the recipe.
"""

from __future__ import annotations

import importlib.util
import os
import plistlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.swift.package import REPOSITORY, toolchain

pytestmark = pytest.mark.swift

CMAKE = """#!/bin/sh
echo "$@" >> {log}
case "$*" in *bespoke_static*) : > "$2/libbespoke_static.a" ;; *-B*) mkdir -p "$4" ;; esac
"""
XCODEBUILD = """#!/bin/sh
echo "$@" > {log}.xcodebuild
"""
NM = """#!/bin/sh
echo "0000000000000000 T _bespoke_open"
[ ! -e {log}.leaks ] || echo "0000000000000000 T _sqlite3_open"
"""


@pytest.fixture
def run(tmp_path: Path):
    """The recipe, on a checkout of ExecuTorch that says the pinned version."""
    log = tmp_path / "log"
    for name, words in {"cmake": CMAKE, "xcodebuild": XCODEBUILD, "nm": NM}.items():
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(words.format(log=log), encoding="utf-8")
        tool.chmod(0o755)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = project["project"]["optional-dependencies"]["executorch"][0].partition("==")[2]
    (tmp_path / "executorch").mkdir()
    (tmp_path / "executorch" / "version.txt").write_text(f"{pinned}a0\n", encoding="utf-8")

    def recipe(*platforms: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", REPOSITORY / "bindings/swift/build_xcframework.sh", tmp_path / "executorch", *platforms],
            env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "OUT": str(tmp_path / "out")},
            capture_output=True,
            text=True,
            check=False,
        )

    return recipe


def test_each_platform_has_a_framework_that_a_compiler_takes(run, tmp_path: Path) -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    frameworks = [out / platform / "CBespoke.framework" for platform in ("ios", "ios-simulator", "macos")]
    packed = (tmp_path / "log.xcodebuild").read_text(encoding="utf-8")
    assert all(f"-framework {framework}" in packed for framework in frameworks)
    assert packed.split()[-1] == str(REPOSITORY / "bindings/swift/CBespoke.xcframework")

    asked = (tmp_path / "log").read_text(encoding="utf-8")
    for kernels in ("iphoneos", "iphonesimulator", "macosx"):
        assert asked.count(f"-DCMAKE_OSX_SYSROOT={kernels}") == 2
    assert asked.count("-DCMAKE_SYSTEM_PROCESSOR=arm64") == 6
    assert asked.count("--target bespoke_static") == 3

    for framework, target in zip(
        frameworks, ("arm64-apple-ios17.0", "arm64-apple-ios17.0-simulator", "arm64-apple-macos14.0"), strict=True
    ):
        resources = framework / "Resources" if "macos" in target else framework
        info = plistlib.loads((resources / "Info.plist").read_bytes())
        assert info["CFBundleExecutable"] == "CBespoke"
        assert (framework / "CBespoke").is_file()
        privacy = plistlib.loads((resources / "PrivacyInfo.xcprivacy").read_bytes())
        assert privacy["NSPrivacyTracking"] is False
        client = tmp_path / "client.m"
        client.write_text("@import CBespoke;\nint main(void) { return bespoke_version() == 0; }\n", encoding="utf-8")
        flags = ["-target", target, "-ffreestanding", "-fmodules", f"-fmodules-cache-path={tmp_path / 'cache'}"]
        toolchain("clang", *flags, "-fsyntax-only", "-Werror", f"-F{framework.parent}", client)


def test_a_symbol_that_is_not_of_the_header_is_refused(run, tmp_path: Path) -> None:
    (tmp_path / "log.leaks").touch()
    done = run("ios")
    assert done.returncode == 1
    assert "_sqlite3_open" in done.stderr
    assert not (tmp_path / "log.xcodebuild").exists()


def test_another_version_of_executorch_is_refused(run, tmp_path: Path) -> None:
    (tmp_path / "executorch" / "version.txt").write_text("0.1.0\n", encoding="utf-8")
    done = run("ios")
    assert done.returncode == 1
    assert "got ExecuTorch 0.1.0" in done.stderr


def test_the_workflow_for_a_mac_names_what_is_there() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github/workflows/apple.yml").read_text(encoding="utf-8"))
    commands = "\n".join(step.get("run", "") for step in workflow["jobs"]["swift"]["steps"])
    modules = re.findall(r"python -m ((?:tests|bespoke)\.[a-z_.]+)", commands)
    assert len(modules) == 3
    assert all(importlib.util.find_spec(module) for module in modules)
    scripts = re.findall(r"bindings/swift/\w+\.sh", commands)
    assert scripts
    assert all((REPOSITORY / script).is_file() for script in scripts)


def test_the_script_is_clean() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    script = REPOSITORY / "bindings/swift/build_xcframework.sh"
    subprocess.run(["shellcheck", script], check=True)
