# SPDX-License-Identifier: Apache-2.0
"""explode.py TARGET: every TARGET/aar/*.aar as a folder in TARGET/exploded, and the classes of all put together in TARGET/classes;
the classes of TARGET/robolectric/NAME.aar, which tests alone need, as NAME.jar beside it."""

import io
import sys
import zipfile
from pathlib import Path


def main(target: Path) -> None:
    for aar in sorted((target / "aar").glob("*.aar")):
        folder = target / "exploded" / aar.stem
        with zipfile.ZipFile(aar) as archive:
            archive.extractall(folder)
            with zipfile.ZipFile(io.BytesIO(archive.read("classes.jar"))) as classes:
                classes.extractall(target / "classes", [name for name in classes.namelist() if name != "META-INF/MANIFEST.MF"])
    for aar in (target / "robolectric").glob("*.aar"):
        with zipfile.ZipFile(aar) as archive:
            aar.with_suffix(".jar").write_bytes(archive.read("classes.jar"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
