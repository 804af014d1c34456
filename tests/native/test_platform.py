# SPDX-License-Identifier: Apache-2.0
"""The core's folders keep their borders: systems' names stay in `platform`, includes point one way. The Apple branch compiles. The
privacy manifest has a reason for each interface that Apple wants one for.

Nothing of the Apple branch runs here: clang compiles it against declarations that were copied from Apple's headers.
"""

from __future__ import annotations

import plistlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import SOURCE

SRC = SOURCE / "src"
# What a folder of src may include beside itself; error.h, enums.h and bytes.h are everybody's.
MAY_USE = {
    "api": {"model", "exec", "state", "format", "kernels", "engines", "platform"},
    "model": {"federated", "train", "verify", "generate", "exec", "state", "text", "format"},
    "federated": {"train", "exec", "state", "format", "platform"},
    "train": {"generate", "exec", "state", "format", "platform"},
    "verify": {"train", "exec", "state", "text", "format", "platform"},
    "generate": {"exec", "text", "format"},
    "exec": {"kernels", "format", "platform"},
    "state": {"format", "platform"},
    "text": {"format"},
    "format": {"platform"},
    "engines": {"kernels", "format", "platform"},
    "kernels": {"platform"},
    "platform": set(),
    "tool": {"engines", "kernels", "text", "format", "platform"},
}
ASKS_A_SYSTEM = {"tool/bench_cores.cpp"}  # about the device; the library of an app has no use for it
OF_A_SYSTEM = re.compile(
    r"/proc\b|__APPLE__|__linux__|__GLIBC__|__ANDROID__|<mach/|<malloc\.h>|<sys/(mman|file|sysctl|syscall)\.h>|\bmadvise\(|"
    r"\bflock\(|\bposix_fallocate\(|\bF_FULLFSYNC\b|[^\w]fsync\("
)

# Apple's categories of interfaces that an app needs a reason for -> the names of C in them, and the reasons that may be given.
# From "Describing use of required reason API"; KERN_BOOTTIME is not named there, and tells the same.
NEEDS_A_REASON = {
    "FileTimestamp": (
        r"\b(?:l|f)?stat(?:at)?\(|\b(?:f?getattrlist(?:at|bulk)?)\(",
        {"DDA9.1", "C617.1", "3B52.1", "0A2A.1"},
    ),
    "DiskSpace": (r"\bf?statv?fs\(", {"85F4.1", "E174.1", "7D9E.1", "B728.1"}),
    "SystemBootTime": (r"\bmach_absolute_time\(|\bKERN_BOOTTIME\b", {"35F9.1", "8FFB.1", "3D61.1"}),
}


def sources() -> list[Path]:
    return [path for path in sorted(SRC.rglob("*")) if path.suffix in (".cpp", ".h")]


def folder_of(path: Path) -> str | None:
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else None


def test_only_the_platform_layer_names_a_system() -> None:
    found = [
        f"{path.relative_to(SRC)}:{number}: {line.strip()}"
        for path in sources()
        if folder_of(path) != "platform" and str(path.relative_to(SRC)) not in ASKS_A_SYSTEM
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OF_A_SYSTEM.search(re.sub(r"//.*", "", line))
    ]
    assert not found, found


def test_includes_point_one_way() -> None:
    assert {folder_of(path) for path in sources()} - {None} == set(MAY_USE)
    wrong = [
        f"{path.relative_to(SRC)} includes {name}"
        for path in sources()
        if (folder := folder_of(path))
        for name in re.findall(r'#include "(\w+)/', path.read_text())
        if name not in {folder} | MAY_USE[folder]
    ]
    assert not wrong, wrong


def test_both_systems_have_the_same_parts() -> None:
    parts = [{path.name for path in (SRC / "platform" / system).glob("*.cpp")} for system in ("linux", "apple")]
    assert parts[0] == parts[1]


@pytest.mark.parametrize("system", ["macos", "ios"])
def test_the_apple_branch_compiles_against_declarations_of_its_system(system: str) -> None:
    if not shutil.which("clang++"):
        pytest.skip("clang++ is not installed")
    files = [str(path) for path in (SRC / "platform").rglob("*.cpp") if path.parent.name != "linux"]
    stubs = SOURCE / "tests/apple_stubs"
    command = [
        "clang++",
        "-std=c++17",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-isystem",
        str(stubs / system),
        "-isystem",
        str(stubs),
        "-I",
        str(SRC),
    ]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_privacy_manifest_has_reasons_for_exactly_what_the_core_uses_on_apple() -> None:
    manifest = plistlib.loads((SOURCE / "PrivacyInfo.xcprivacy").read_bytes())
    given = {
        entry["NSPrivacyAccessedAPIType"].removeprefix("NSPrivacyAccessedAPICategory"): set(
            entry["NSPrivacyAccessedAPITypeReasons"]
        )
        for entry in manifest["NSPrivacyAccessedAPITypes"]
    }
    compiled = [path for path in sources() if "linux" not in path.parts]
    compiled += [path for path in sorted((SOURCE / "third_party").rglob("*")) if path.suffix in (".c", ".h")]
    text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in compiled)
    used = {name for name, (interfaces, _) in NEEDS_A_REASON.items() if re.search(interfaces, text)}
    assert given.keys() == used
    for name, reasons in given.items():
        assert set() < reasons <= NEEDS_A_REASON[name][1], name
    assert manifest["NSPrivacyTracking"] is False
    assert manifest["NSPrivacyCollectedDataTypes"] == []
