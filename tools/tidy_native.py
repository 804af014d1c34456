# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy and clang's -Wthread-safety over the C++ of the device core (.clang-tidy), as build/core compiles it.

A file that was clean is not looked at again until it, a header or a setting changes: .cache/tidy remembers it.

python tools/tidy_native.py
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CORE = REPOSITORY / "bindings" / "native"
DATABASE = REPOSITORY / "build" / "core" / "compile_commands.json"
CLEAN = REPOSITORY / ".cache" / "tidy"
PROGRAM = Path(sys.executable).with_name("clang-tidy")


def files() -> list[Path]:
    """The sources of the core that are compiled on this machine."""
    commands = json.loads(DATABASE.read_text(encoding="utf-8"))
    return sorted({path for command in commands if (path := Path(command["file"])).is_relative_to(CORE / "src")})


def settings() -> bytes:
    """A hash of all that a finding depends on but for the file itself."""
    headers = sorted(path for folder in ("src", "include") for path in (CORE / folder).rglob("*.h"))
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout
    parts = [version, *(path.read_bytes() for path in (REPOSITORY / ".clang-tidy", CORE / "CMakeLists.txt", *headers))]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def findings(path: Path, common: bytes) -> str:
    """What clang-tidy has to say of a file; nothing where it is clean."""
    mark = CLEAN / hashlib.sha256(common + path.read_bytes() + str(path.relative_to(REPOSITORY)).encode()).hexdigest()
    if mark.exists():
        return ""
    of_gcc = "--removed-arg=-fno-gnu-unique"
    command = [PROGRAM, "-p", DATABASE.parent, "--quiet", of_gcc, path]
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
        found = [text for text in pool.map(lambda path: findings(path, common), files()) if text]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
