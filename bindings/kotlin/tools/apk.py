# SPDX-License-Identifier: Apache-2.0
"""apk.py OUT.apk: an app as Gradle would pack it, out of what Maven, explode.py and link.py have made.

Its code goes through R8 in full mode, under no rules but those that libraries bring along (--rules: ours, and each AAR's
proguard.txt; those in jars) and those that aapt2 writes for what manifest and layouts name; so an app needs no rules of its own.
Then link.py's resources, libraries and bundles stored, all of it aligned (align.py) and signed with a key for tests (v2 and v3).
"""

import argparse
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import elf
from align import align

MIN_SDK = "26"
PASSWORD = "android"  # of every debug key; nothing rests on it


def dex(out: Path, r8: Path, android: Path, classpath: Sequence[Path], rules: Sequence[Path]) -> None:
    """classes.dex of jars and folders of classes. The JDK stands in for android.jar's java.*, which android-all does not have."""
    java = Path(shutil.which("javac") or "javac").resolve().parents[1]
    zipped = {part: out / f"{i:03}.zip" for i, part in enumerate(classpath) if part.is_dir()}
    for part, jar in zipped.items():
        shutil.make_archive(str(jar.with_suffix("")), "zip", part)
    jars = [zipped.get(part, part) for part in classpath]
    given = [word for path in rules for word in ("--pg-conf", path)]
    _run(
        "java",
        "-Xmx2g",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        r8,
        "com.android.tools.r8.R8",
        "--release",
        "--min-api",
        MIN_SDK,
        "--lib",
        android,
        "--lib",
        java,
        *given,
        "--pg-map-output",
        out / "mapping.txt",
        "--output",
        out,
        *jars,
    )


def pack(out: Path, resources: Path, dexes: Path, libraries: Mapping[str, Path], assets: Path | None) -> None:
    shutil.copy(resources, out)
    with zipfile.ZipFile(out, "a") as apk:
        for path in sorted(dexes.glob("classes*.dex")):
            apk.write(path, path.name, zipfile.ZIP_DEFLATED)
        for abi, folder in libraries.items():
            for path in sorted(folder.glob("*.so")):
                elf.check(path, abi)
                apk.write(path, f"lib/{abi}/{path.name}", zipfile.ZIP_STORED)  # loaded from there, unpacked nowhere
        for path in sorted(assets.rglob("*")) if assets else []:
            if path.is_file():
                how = zipfile.ZIP_STORED if path.suffix == ".zip" else zipfile.ZIP_DEFLATED
                apk.write(path, f"assets/{path.relative_to(assets or path).as_posix()}", how)


def sign(unsigned: Path, out: Path, key: Path) -> None:
    if not key.exists():
        _run(
            "keytool",
            "-genkeypair",
            "-keystore",
            key,
            "-storepass",
            PASSWORD,
            "-keypass",
            PASSWORD,
            "-alias",
            "debug",
            "-keyalg",
            "RSA",
            "-keysize",
            "2048",
            "-validity",
            "10000",
            "-dname",
            "CN=Debug",
        )
    _run(
        "apksigner",
        "sign",
        "--ks",
        key,
        "--ks-pass",
        f"pass:{PASSWORD}",
        "--min-sdk-version",
        MIN_SDK,
        "--v1-signing-enabled",
        "false",
        "--v2-signing-enabled",
        "true",
        "--v3-signing-enabled",
        "true",
        "--out",
        out,
        unsigned,
    )


def _run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]}: got\n{(done.stdout + done.stderr)[-6000:]}")


def main(given: argparse.Namespace) -> None:
    linked = given.module / "target" / "android"
    libraries = {abi: Path(folder) for abi, _, folder in (one.partition("=") for one in given.lib)}
    classpath = list(map(Path, given.classpath.split(":")))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        dex(work, given.r8, given.android, classpath, [linked / "manifest-rules.pro", *given.rules])
        pack(work / "packed.apk", linked / "resources.apk", work, libraries, given.assets)
        align(work / "packed.apk", work / "aligned.apk")
        sign(work / "aligned.apk", given.out, linked.parent / "debug.keystore")
        shutil.copy(work / "mapping.txt", given.out.with_suffix(".mapping.txt"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--module", type=Path, required=True, help="where link.py has linked the resources")
    parser.add_argument(
        "--classpath", required=True, help="jars and folders of classes, R classes among them, with colons"
    )
    parser.add_argument("--android", type=Path, required=True, help="android-all.jar")
    parser.add_argument("--r8", type=Path, required=True, help="the jar of R8")
    parser.add_argument("--rules", type=Path, action="append", default=[], help="consumer rules of a library")
    parser.add_argument("--lib", action="append", default=[], metavar="ABI=FOLDER", help="its libraries")
    parser.add_argument("--assets", type=Path, help="a folder; what ends in .zip is stored")
    main(parser.parse_args())
