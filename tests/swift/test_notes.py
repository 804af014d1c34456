# SPDX-License-Identifier: Apache-2.0
"""The sample app for iOS on Linux: its tests on the installed core, its screens against a stand-in for SwiftUI."""

from __future__ import annotations

import plistlib
import re
from pathlib import Path

import pytest

from tests.swift.package import NOTES, NOTES_BUILT, NOTES_FLAGS, REPOSITORY, check_refused, swift, toolchain

pytestmark = pytest.mark.swift


def test_the_tests_of_the_app_pass(notes_compiled: None, prepared: Path) -> None:
    said = swift(
        "test",
        "--skip-build",
        "--no-parallel",  # the stand-in for the system runs one app at a time
        *NOTES_FLAGS,
        package=NOTES,
        built=NOTES_BUILT,
        BESPOKE_FIXTURE=str(prepared),
    )
    count = re.search(r"Test run with (\d+) tests in \d+ suites passed", said)
    assert count is not None, said[-8000:]
    assert int(count[1]) >= 36


def test_wrong_screens_do_not_type_check(notes_compiled: None) -> None:
    file = Path(__file__).with_name("WrongScreens.swift")
    modules = NOTES_BUILT / "debug" / "Modules"
    said = toolchain("swiftc", "-typecheck", "-swift-version", "6", "-I", modules, file, check=False).stdout
    check_refused(file, said)


def test_it_is_formatted(has_toolchain: None) -> None:
    places = [NOTES / name for name in ("Package.swift", "Sources", "Tests")]
    toolchain("swift", "format", "lint", "--strict", "--recursive", *places)


def test_info_plist_permits_what_the_code_asks_for() -> None:
    info = plistlib.loads((NOTES / "Info.plist").read_bytes())
    identifier = re.search(r'identifier = "([^"]+)"', source("NotesModels/Learning.swift"))
    assert identifier is not None
    assert info["BGTaskSchedulerPermittedIdentifiers"] == [identifier[1], f"{identifier[1]}.now.*"]
    assert info["UIBackgroundModes"] == ["processing"]
    assert not [key for key in info if key.endswith("UsageDescription")], "it asks for no permission"


def test_the_privacy_manifest_says_that_nothing_is_collected_and_what_the_core_calls() -> None:
    privacy = plistlib.loads((NOTES / "PrivacyInfo.xcprivacy").read_bytes())
    core = plistlib.loads((REPOSITORY / "bindings" / "native" / "PrivacyInfo.xcprivacy").read_bytes())
    assert privacy["NSPrivacyTracking"] is False
    assert privacy["NSPrivacyTrackingDomains"] == privacy["NSPrivacyCollectedDataTypes"] == []
    declared, of_core = reasons(privacy), reasons(core)
    assert declared.keys() == of_core.keys()
    assert all(declared[kind] and declared[kind] <= of_core[kind] for kind in declared)


def reasons(manifest: dict[str, list[dict[str, list[str]]]]) -> dict[str, set[str]]:
    return {
        str(one["NSPrivacyAccessedAPIType"]): set(one["NSPrivacyAccessedAPITypeReasons"])
        for one in manifest["NSPrivacyAccessedAPITypes"]
    }


def test_it_uses_no_network() -> None:
    network = r"FoundationNetworking|URLSession|URLRequest|NWConnection|CFNetwork|WebKit|import Network\b"
    assert [path.name for path in sources() if re.search(network, path.read_text(encoding="utf-8"))] == []


def test_every_word_is_said() -> None:
    words = re.findall(r"\b[a-z]\w+\b(?=,|$)", source("NotesModels/Word.swift"), re.MULTILINE)
    assert len(words) > 100
    code = "".join(path.read_text(encoding="utf-8") for path in sources() if path.name != "Word.swift")
    assert [word for word in words if not re.search(rf"\.{word}\b", code)] == []


def sources() -> list[Path]:
    return sorted((NOTES / "Sources").rglob("*.swift"))


def source(name: str) -> str:
    return (NOTES / "Sources" / name).read_text(encoding="utf-8")
