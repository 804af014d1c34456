# SPDX-License-Identifier: Apache-2.0
"""aar.py MODULE OUT [--lib ABI=FOLDER ...]: a module that Maven has compiled, as the AAR that Gradle would make of it.

Its name is ARTIFACT-VERSION.aar. Libraries for Linux with glibc may stand in for those that `build_with_ndk.sh` makes; the AAR then
is ARTIFACT-VERSION-glibc-standin.aar, since no Android loads them.
"""

import argparse
import io
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import elf

POM = "{http://maven.apache.org/POM/4.0.0}"
DATE = (1980, 1, 1, 0, 0, 0)  # same files, same AAR


def artifact(module: Path) -> str:
    root = ElementTree.parse(module / "pom.xml").getroot()
    version = root.findtext(f"{POM}version") or root.findtext(f"{POM}parent/{POM}version")
    return f"{root.findtext(f'{POM}artifactId')}-{version}"


def classes(module: Path) -> bytes:
    folder, jar = module / "target" / "classes", io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.writestr(_entry(path.relative_to(folder).as_posix()), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return jar.getvalue()


def parts(module: Path) -> Iterator[tuple[str, bytes]]:
    yield "AndroidManifest.xml", (module / "src" / "main" / "AndroidManifest.xml").read_bytes()
    yield "classes.jar", classes(module)
    yield "proguard.txt", (module / "consumer-rules.pro").read_bytes()
    yield "R.txt", b""  # it has no resources


def write_aar(module: Path, out: Path, libraries: Mapping[str, Path]) -> Path:
    found = [(abi, path) for abi, folder in libraries.items() for path in sorted(folder.glob("*.so"))]
    checked = [elf.check(path, abi) for abi, path in found]
    is_standin = any(library.is_glibc for library in checked)
    target = out / f"{artifact(module)}{'-glibc-standin' if is_standin else ''}.aar"
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in parts(module):
            archive.writestr(_entry(name), data, zipfile.ZIP_DEFLATED)
        for abi, path in found:
            archive.writestr(_entry(f"jni/{abi}/{path.name}"), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, DATE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lib", action="append", default=[], metavar="ABI=FOLDER")
    given = parser.parse_args()
    print(
        write_aar(
            given.module, given.out, {abi: Path(folder) for abi, _, folder in (one.partition("=") for one in given.lib)}
        )
    )
