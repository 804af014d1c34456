# SPDX-License-Identifier: Apache-2.0
"""Swift packages, built and run by the toolchain of tools/swift.sh on the installed core."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.support.phone_fixture import core_folder

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "bindings" / "swift"
SECONDS = 1200  # some times what the slowest command takes
BUILT = REPOSITORY / ".cache" / "swift_build"
TREE = REPOSITORY / ".cache" / "swift"  # of tools/install_swift.sh
NOTES = REPOSITORY / "sample_apps" / "ios"
NOTES_BUILT = BUILT / "notes"
NOTES_FLAGS = ("-Xswiftc", "-warnings-as-errors")


def toolchain(*command: str | Path, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a command of the toolchain said; AssertionError with its last lines where it fails and `check` is set."""
    done = subprocess.run(
        ["sh", REPOSITORY / "tools" / "swift.sh", *command],
        env={**os.environ, "BESPOKE_CORE": str(core_folder() / "lib"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert not check or done.returncode == 0, done.stdout[-8000:]
    return done


def swift(
    command: str,
    *arguments: str | Path,
    package: Path = PACKAGE,
    built: Path = BUILT,
    core: Path | None = None,
    **environment: str,
) -> str:
    """What `swift COMMAND` on a package said; `built` is where its builds lie, `core` another library than the installed one's."""
    core = core or core_folder() / "lib"
    # Debian's toolchain lacks the library for what Testing and Foundation have together, which nothing here uses.
    flags = ["-Xlinker", f"-L{core}", "-Xlinker", "-rpath", "-Xlinker", f"{core}"]
    flags += ["-Xswiftc", "-Xfrontend", "-Xswiftc", "-disable-cross-import-overlays"]
    flags += [word for folder in compilers() for word in ("-Xcxx", f"--gcc-install-dir={folder}")]
    places = ["--package-path", package, "--scratch-path", built, "--disable-sandbox"]
    return toolchain("swift", command, *places, *flags, *arguments, **environment).stdout


def compilers() -> list[str]:
    """Folders of the GCC whose C++ headers the tree has. Clang would take the newest one, of which there are no headers."""
    versions = {folder.name for folder in TREE.glob("usr/include/c++/*")}
    return [f"/{folder.relative_to(TREE)}" for folder in TREE.glob("usr/lib/gcc/*/*") if folder.name in versions]


def check_refused(file: Path, said: str) -> None:
    """Holds what the compiler said of a file: an error at each line that ends in `// wrong`, and at no other."""
    refused = {int(line) for line in re.findall(rf"{file.name}:(\d+):\d+: error:", said)}
    lines = file.read_text(encoding="utf-8").splitlines()
    assert refused == {number for number, line in enumerate(lines, 1) if line.endswith("// wrong")}, said
