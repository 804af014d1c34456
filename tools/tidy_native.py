# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy and clang's -Wthread-safety over the C++ of the device core (.clang-tidy), as build/core compiles it: the sources
of a folder together (bindings/native/cmake/parts.cmake).

Sources that were clean are not looked at again until they, a header or a setting change: .cache/tidy remembers them.

python tools/tidy_native.py
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CORE = REPOSITORY / "bindings" / "native"
DATABASE = REPOSITORY / "build" / "core" / "compile_commands.json"
CLEAN = REPOSITORY / ".cache" / "tidy"
PROGRAM = Path(sys.executable).with_name("clang-tidy")


def compiled() -> dict[Path, list[Path]]:
    """What the compiler is given on this machine, each with the sources of the core that it is or includes."""
    found = {}
    for command in json.loads(DATABASE.read_text(encoding="utf-8")):
        given = Path(command["file"])
        sources = [given]
        if given.parent.name == "Unity":
            sources = [
                Path(name) for name in re.findall(r'^#include "(.*\.cpp)"$', given.read_text("utf-8"), re.MULTILINE)
            ]
        if sources[0].is_relative_to(CORE / "src"):
            found.setdefault(tuple(sources), given)
    return {given: list(sources) for sources, given in found.items()}


def settings() -> bytes:
    """A hash of all that a finding depends on but for the file itself."""
    headers = sorted(path for folder in ("src", "include") for path in (CORE / folder).rglob("*.h"))
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout
    parts = [version, *(path.read_bytes() for path in (REPOSITORY / ".clang-tidy", CORE / "CMakeLists.txt", *headers))]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def findings(given: Path, sources: list[Path], common: bytes) -> str:
    """What clang-tidy has to say of sources that are compiled together; nothing where they are clean."""
    parts = b"".join(path.read_bytes() + str(path.relative_to(REPOSITORY)).encode() for path in sources)
    mark = CLEAN / hashlib.sha256(common + parts).hexdigest()
    if mark.exists():
        return ""
    options = ["--config-file", REPOSITORY / ".clang-tidy", "--checks=-bugprone-suspicious-include"]  # of .cpp files
    of_gcc = "--removed-arg=-fno-gnu-unique"
    command = [PROGRAM, "-p", DATABASE.parent, "--quiet", *options, of_gcc, given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        CLEAN.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return ""
    return done.stdout or done.stderr


def main() -> int:
    if not DATABASE.exists():
        print(
            f"{DATABASE.relative_to(REPOSITORY)} is not there: the device core was not compiled, so nothing is checked"
        )
        return 0
    common = settings()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for text in pool.map(lambda item: findings(*item, common), compiled().items()) if text]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
