# SPDX-License-Identifier: Apache-2.0
"""explode.py TARGET: every TARGET/aar/*.aar as a folder in TARGET/exploded, and the classes of all put together in TARGET/classes;
the classes of TARGET/robolectric/NAME.aar, which tests alone need, as NAME.jar beside it.

Macros in resources (`@macro/NAME`, of material) are written out: Debian's aapt2 is older than they are.
"""

import re
import sys
import zipfile
from pathlib import Path

from unchanged import digest, is_unchanged

MACRO = re.compile(r'<macro name="(\w+)">([^<]*)</macro>')
USE = re.compile(r"@macro/(\w+)")


def main(target: Path) -> None:
    stamp = target / "exploded" / "inputs.sha256"
    aars, for_tests = (sorted((target / name).glob("*.aar")) for name in ("aar", "robolectric"))
    inputs = digest([Path(__file__), *aars, *for_tests])
    if is_unchanged(stamp, inputs) and (target / "classes").is_dir():
        return
    for aar in aars:
        folder = target / "exploded" / aar.stem
        with zipfile.ZipFile(aar) as archive:
            archive.extractall(folder)
        for jar in [folder / "classes.jar", *sorted((folder / "libs").glob("*.jar"))]:
            with zipfile.ZipFile(jar) as classes:
                classes.extractall(
                    target / "classes", [name for name in classes.namelist() if name != "META-INF/MANIFEST.MF"]
                )
        write_macros_out(folder / "res")
    for aar in for_tests:
        with zipfile.ZipFile(aar) as archive:
            aar.with_suffix(".jar").write_bytes(archive.read("classes.jar"))
    stamp.write_text(inputs, encoding="utf-8")


def write_macros_out(resources: Path) -> None:
    files = {path: path.read_text(encoding="utf-8") for path in resources.rglob("*.xml")}
    macros = {name: value for text in files.values() for name, value in MACRO.findall(text)}
    for path, text in files.items():
        if "macro" in text:
            path.write_text(USE.sub(lambda use: macros[use[1]], MACRO.sub("", text)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
