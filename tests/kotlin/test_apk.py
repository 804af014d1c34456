# SPDX-License-Identifier: Apache-2.0
"""An app as a phone gets it: signed, aligned to pages of 16 KB, with no rule and no permission that its libraries did not bring.

No Android runs here: what the system's own tools read in the APK is checked, not that it starts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import pytest

from tests.kotlin.packed import Workshop, run
from tests.kotlin.zip_headers import headers

pytestmark = pytest.mark.kotlin
PAGE = 16_384
NAME = "{http://schemas.android.com/apk/res/android}name"
# WorkManager's and androidx.core's own, with which every app with WorkManager is installed.
OF_WORK_MANAGER = {
    "android.permission.WAKE_LOCK",
    "android.permission.ACCESS_NETWORK_STATE",
    "android.permission.RECEIVE_BOOT_COMPLETED",
    "android.permission.FOREGROUND_SERVICE",
    "dev.bespoke.smallest.DYNAMIC_RECEIVER_NOT_EXPORTED_PERMISSION",
}
PERMISSIONS = {
    "learning": OF_WORK_MANAGER | {"android.permission.FOREGROUND_SERVICE_DATA_SYNC", "android.permission.POST_NOTIFICATIONS"},
    "downloading": OF_WORK_MANAGER | {"android.permission.INTERNET"},
}
# What the system, WorkManager or the native library finds by name.
FOUND_BY_NAME = {
    "learning": [
        "dev/bespoke/smallest/App",
        "dev/bespoke/android/PersonalizationWorker",
        "dev/bespoke/android/TrainingService",
        "dev/bespoke/NativeApi",
        "dev/bespoke/NativeFailure",
        "dev/bespoke/ProgressReceiver",
    ],
    "downloading": ["dev/bespoke/smallest/App", "dev/bespoke/delivery/DownloadWorker", "dev/bespoke/NativeApi"],
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("apk"))


@pytest.fixture(scope="module")
def libraries(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The binding's library of this machine, and smallest ones in the place of those that only an NDK makes."""
    folder = tmp_path_factory.mktemp("lib")
    for abi, compiler in (("arm64-v8a", "aarch64-linux-gnu-gcc"), ("x86_64", "gcc")):
        (folder / abi).mkdir()
        (folder / "empty.c").write_text("int bespoke_nothing(void) { return 0; }\n")
        paged = "-Wl,-z,max-page-size=16384"
        run(compiler, "-shared", "-fPIC", paged, folder / "empty.c", "-o", folder / abi / "libbespoke_core.so")
    shutil.copy(prepared / "native" / "libbespoke_jni.so", folder / "x86_64")
    return {abi: folder / abi for abi in ("arm64-v8a", "x86_64")}


@pytest.fixture(scope="module")
def assets(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assets")
    shutil.copy(prepared / "archives" / "chat" / "whole.zip", folder / "chat.zip")
    (folder / "words.txt").write_text("compressed, " * 100)
    return folder


@pytest.fixture(scope="module", params=sorted(PERMISSIONS))
def app(request: pytest.FixtureRequest, workshop: Workshop, libraries: dict[str, Path], assets: Path) -> tuple[str, Path]:
    return request.param, workshop.app(request.param, libraries, assets)


def test_its_signatures_verify(app: tuple[str, Path]) -> None:
    said = run("apksigner", "verify", "--verbose", "--min-sdk-version", "26", app[1])
    assert "Verified using v2 scheme (APK Signature Scheme v2): true" in said
    assert "Verified using v3 scheme (APK Signature Scheme v3): true" in said


def test_a_changed_byte_breaks_them(app: tuple[str, Path], tmp_path: Path) -> None:
    changed = bytearray(app[1].read_bytes())
    begin = headers(app[1])["assets/chat.zip"].begin
    changed[begin + 1000] ^= 1
    (tmp_path / "app.apk").write_bytes(changed)
    assert subprocess.run(["apksigner", "verify", tmp_path / "app.apk"], capture_output=True).returncode != 0


def test_the_system_reads_what_it_is(app: tuple[str, Path]) -> None:
    badging = run("aapt", "dump", "badging", app[1])
    assert "package: name='dev.bespoke.smallest' versionCode='1' versionName='0.1.0'" in badging
    for line in ("sdkVersion:'26'", "targetSdkVersion:'36'"):
        assert line in badging
    assert "native-code: 'arm64-v8a' 'x86_64'" in badging
    assert "application-label:'Smallest'" in badging


def test_it_asks_for_these_permissions_and_no_others(app: tuple[str, Path]) -> None:
    name, apk = app
    said = run("aapt", "dump", "permissions", apk)
    assert set(re.findall(r"uses-permission(?:-sdk-\d+)?: name='([^']+)'", said)) == PERMISSIONS[name]
    merged = ElementTree.parse(apk.parent / "target" / "android" / "AndroidManifest.xml").getroot()
    asked = {one.get(NAME) for tag in ("uses-permission", "uses-permission-sdk-23") for one in merged.iter(tag)}
    assert asked == PERMISSIONS[name]


def test_libraries_and_bundles_lie_on_pages_after_signing(app: tuple[str, Path], libraries: dict[str, Path], assets: Path) -> None:
    _, apk = app
    data, found = apk.read_bytes(), headers(apk)
    expected = {f"lib/{abi}/{path.name}": path for abi, folder in libraries.items() for path in folder.iterdir()}
    assert {entry for entry in found if entry.startswith("lib/")} == set(expected)
    for entry, path in {**expected, "assets/chat.zip": assets / "chat.zip"}.items():
        method, begin, size = found[entry]
        assert (method, begin % PAGE, data[begin : begin + size]) == (0, 0, path.read_bytes()), entry
    assert found["resources.arsc"].method == 0
    assert found["resources.arsc"].begin % 4 == 0
    assert all(begin % 4 == 0 for method, begin, _ in found.values() if method == 0)
    assert found["assets/words.txt"].method == 8
    assert not any(entry.startswith("META-INF/MANIFEST") for entry in found), "v1 signatures are for systems before API 24"


def test_what_is_found_by_name_keeps_its_name(app: tuple[str, Path]) -> None:
    name, apk = app
    with zipfile.ZipFile(apk) as archive:
        code = b"".join(archive.read(entry) for entry in archive.namelist() if entry.endswith(".dex"))
    for kept in FOUND_BY_NAME[name]:
        assert f"L{kept};".encode() in code, kept
    assert b"Ldev/bespoke/Conversation;" not in code, "R8 shortens all other names"


def test_each_rule_of_the_workers_is_needed(workshop: Workshop, libraries: dict[str, Path], assets: Path) -> None:
    apk = workshop.app("downloading", libraries, assets, rules=[])
    with zipfile.ZipFile(apk) as archive:
        code = b"".join(archive.read(entry) for entry in archive.namelist() if entry.endswith(".dex"))
    assert b"Ldev/bespoke/delivery/DownloadWorker;" not in code
