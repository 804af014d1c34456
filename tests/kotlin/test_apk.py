# SPDX-License-Identifier: Apache-2.0
"""An app as a phone gets it: signed, aligned to pages of 16 KB, with no rule and no permission that its libraries did not bring.

No Android runs here: what the system's own tools read in the APK is checked, not that it starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.benchmarks.figures import write_table
from tests.benchmarks.overview import table
from tests.conftest import REPOSITORY
from tests.kotlin.packed import Workshop, run
from tests.kotlin.zip_headers import headers
from tests.support.checks import few_of
from tests.support.phone_fixture import core_folder

pytestmark = pytest.mark.kotlin
PAGE = 16_384
NAME = "{http://schemas.android.com/apk/res/android}name"
# WorkManager's and androidx.core's own, with which every app with WorkManager is installed.
OF_WORK_MANAGER = {
    "android.permission.WAKE_LOCK",
    "android.permission.ACCESS_NETWORK_STATE",
    "android.permission.RECEIVE_BOOT_COMPLETED",
    "android.permission.FOREGROUND_SERVICE",
}
LEARNING = OF_WORK_MANAGER | {
    "android.permission.FOREGROUND_SERVICE_DATA_SYNC",
    "android.permission.POST_NOTIFICATIONS",
}


class App(NamedTuple):
    package: str
    label: str
    permissions: set[str]
    found_by_name: set[str]  # by the system, WorkManager or the native library

    @property
    def asks_for(self) -> set[str]:
        return self.permissions | {f"{self.package}.DYNAMIC_RECEIVER_NOT_EXPORTED_PERMISSION"}


OF_LEARNING = {
    "dev/bespoke/android/PersonalizationWorker",
    "dev/bespoke/android/TrainingService",
    "dev/bespoke/NativeApi",
    "dev/bespoke/NativeFailure",
    "dev/bespoke/ProgressReceiver",
}
SCREENS = {f"dev/bespoke/notes/{name}Activity" for name in ("Notes", "WriteNote", "Learning", "Versions", "Ask")}
APPS = {
    "learning": App("dev.bespoke.smallest", "Smallest", LEARNING, {"dev/bespoke/smallest/App", *OF_LEARNING}),
    "downloading": App(
        "dev.bespoke.smallest",
        "Smallest",
        OF_WORK_MANAGER | {"android.permission.INTERNET"},
        {"dev/bespoke/smallest/App", "dev/bespoke/delivery/DownloadWorker", "dev/bespoke/NativeApi"},
    ),
    "together": App(
        "dev.bespoke.smallest",
        "Smallest",
        LEARNING | {"android.permission.INTERNET"},
        {"dev/bespoke/smallest/App", "dev/bespoke/federation/FederationWorker", *OF_LEARNING},
    ),
    "notes": App("dev.bespoke.notes", "Notes", LEARNING, {"dev/bespoke/notes/NotesApp", *SCREENS, *OF_LEARNING}),
}


@pytest.fixture(scope="module")
def workshop(compiled: int, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("apk"))


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Smallest libraries for both ABIs, in the place of those that only an NDK makes."""
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "empty.c").write_text("int bespoke_nothing(void) { return 0; }\n")
    for abi, compiler in (("arm64-v8a", "aarch64-linux-gnu-gcc"), ("x86_64", "gcc")):
        (folder / abi).mkdir()
        paged = "-Wl,-z,max-page-size=16384"
        run(compiler, "-shared", "-fPIC", paged, folder / "empty.c", "-o", folder / abi / "libbespoke_core.so")
    return {abi: folder / abi for abi in ("arm64-v8a", "x86_64")}


@pytest.fixture(scope="module")
def of_this_machine(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The whole device core and the binding's library, for glibc: what an app holds, and what no Android loads."""
    folder = tmp_path_factory.mktemp("glibc")
    others = ("engine_mlx", "backend_qnn")  # Apple's; an NPU's, which an app without bundles for it leaves out
    of_processors = (
        path for path in (core_folder() / "lib").glob("*.so") if not any(name in path.name for name in others)
    )
    for path in [*of_processors, prepared / "native" / "libbespoke_jni.so"]:
        shutil.copy(path, folder)
    return {"x86_64": folder}


@pytest.fixture(scope="module")
def assets(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assets")
    shutil.copy(prepared / "archives" / "chat" / "bundle.zip", folder)
    (folder / "words.txt").write_text("compressed, " * 100)
    return folder


class Packed(NamedTuple):
    app: App
    apk: Path
    libraries: dict[str, Path]


@pytest.fixture(scope="module")
def sample(workshop: Workshop, of_this_machine: dict[str, Path], assets: Path) -> Path:
    return workshop.app("notes", of_this_machine, assets)


# R8 takes a minute or two for an app. What "learning" holds, the sample holds too. Rules of the others: test_shrunk.py.
@pytest.fixture(scope="module", params=few_of(sorted(APPS), ("notes",)))
def packed(request: pytest.FixtureRequest, workshop: Workshop, stubs: dict[str, Path], assets: Path) -> Packed:
    name: str = request.param
    is_sample = name == "notes"
    apk = request.getfixturevalue("sample") if is_sample else workshop.app(name, stubs, assets)
    libraries = request.getfixturevalue("of_this_machine") if is_sample else stubs
    return Packed(APPS[name], apk, libraries)


def test_its_signatures_verify(packed: Packed) -> None:
    said = run("apksigner", "verify", "--verbose", "--min-sdk-version", "26", packed.apk)
    assert "Verified using v2 scheme (APK Signature Scheme v2): true" in said
    assert "Verified using v3 scheme (APK Signature Scheme v3): true" in said


def test_a_changed_byte_breaks_them(packed: Packed, tmp_path: Path) -> None:
    changed = bytearray(packed.apk.read_bytes())
    begin = headers(packed.apk)["assets/bundle.zip"].begin
    changed[begin + 1000] ^= 1
    (tmp_path / "app.apk").write_bytes(changed)
    assert subprocess.run(["apksigner", "verify", tmp_path / "app.apk"], capture_output=True).returncode != 0


def test_the_system_reads_what_it_is(packed: Packed) -> None:
    badging = run("aapt", "dump", "badging", packed.apk)
    assert f"package: name='{packed.app.package}' versionCode='1' versionName='0.1.0'" in badging
    for line in ("sdkVersion:'26'", "targetSdkVersion:'36'"):
        assert line in badging
    assert "native-code: " + " ".join(f"'{abi}'" for abi in packed.libraries) in badging
    assert f"application-label:'{packed.app.label}'" in badging


def test_it_asks_for_these_permissions_and_no_others(packed: Packed) -> None:
    said = run("aapt", "dump", "permissions", packed.apk)
    assert set(re.findall(r"uses-permission(?:-sdk-\d+)?: name='([^']+)'", said)) == packed.app.asks_for


@pytest.mark.parametrize("name", sorted(APPS))
def test_its_merged_manifest_asks_for_them_too(workshop: Workshop, name: str) -> None:
    merged = ElementTree.parse(workshop.manifest(name)).getroot()
    asked = {one.get(NAME) for tag in ("uses-permission", "uses-permission-sdk-23") for one in merged.iter(tag)}
    assert asked == APPS[name].asks_for


def test_libraries_and_bundles_lie_on_pages_after_signing(packed: Packed, assets: Path) -> None:
    data, found = packed.apk.read_bytes(), headers(packed.apk)
    expected = {f"lib/{abi}/{path.name}": path for abi, folder in packed.libraries.items() for path in folder.iterdir()}
    assert {entry for entry in found if entry.startswith("lib/")} == set(expected)
    for entry, path in {**expected, "assets/bundle.zip": assets / "bundle.zip"}.items():
        method, begin, size = found[entry]
        assert (method, begin % PAGE, data[begin : begin + size]) == (0, 0, path.read_bytes()), entry
    assert found["resources.arsc"].method == 0
    assert found["resources.arsc"].begin % 4 == 0
    assert all(begin % 4 == 0 for method, begin, _ in found.values() if method == 0)
    assert found["assets/words.txt"].method == 8
    assert not any(entry.startswith("META-INF/MANIFEST") for entry in found), (
        "v1 signatures are for systems before API 24"
    )


def code_of(apk: Path) -> bytes:
    with zipfile.ZipFile(apk) as archive:
        return b"".join(archive.read(entry) for entry in archive.namelist() if entry.endswith(".dex"))


def test_what_is_found_by_name_keeps_its_name(packed: Packed) -> None:
    code = code_of(packed.apk)
    assert [name for name in sorted(packed.app.found_by_name) if f"L{name};".encode() not in code] == []
    assert b"Ldev/bespoke/Conversation;" not in code, "R8 shortens all other names"


@pytest.mark.slow
def test_without_rules_a_worker_does_not(workshop: Workshop, stubs: dict[str, Path], assets: Path) -> None:
    apk = workshop.app("downloading", stubs, assets, rules=[])
    assert b"Ldev/bespoke/delivery/DownloadWorker;" not in code_of(apk)


def sizes(apk: Path) -> dict[str, int]:
    """Bytes of each part in the file."""
    found: dict[str, int] = {}
    for name, (_, _, size) in headers(apk).items():
        part = "res/" if name.startswith("res/") else name
        found[part] = found.get(part, 0) + size
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def test_the_sample_s_sizes_stand_in_the_docs(sample: Path) -> None:
    """BESPOKE_FULL=1 writes them. A tenth more or less is the same size: another compiler, another JDK."""
    found = {**sizes(sample), "the whole APK": sample.stat().st_size}
    del found["assets/words.txt"]
    if os.environ.get("BESPOKE_FULL") == "1":
        rows = [[name, f"{size:,}"] for name, size in found.items()]
        write_table("apk_sizes", ["glibc, not Android", "bytes"], rows, machine="")
    page = (REPOSITORY / "docs" / "how_to" / "use_android.md").read_text(encoding="utf-8")
    stated = {row["glibc, not Android"]: int(row["bytes"].replace(",", "")) for row in table(page, "apk_sizes")}
    assert stated == pytest.approx(found, rel=0.1)
