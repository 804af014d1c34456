# SPDX-License-Identifier: Apache-2.0
"""Formats the C and C++ of the device core, of the JNI binding and of the tests (.clang-format), or checks it.

python tools/format_native.py [--check]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = ("bindings/native", "bindings/kotlin", "tests")
ENDINGS = (".c", ".cpp", ".h")
OTHERS = ("third_party", "build", "target", ".venv")  # of their own authors, or made


def files() -> list[Path]:
    return sorted(
        path
        for folder in FOLDERS
        for path in (REPOSITORY / folder).rglob("*")
        if path.suffix in ENDINGS and not set(path.relative_to(REPOSITORY).parts) & set(OTHERS)
    )


def main() -> int:
    how = ["--dry-run", "--Werror"] if "--check" in sys.argv[1:] else ["-i"]
    program = Path(sys.executable).with_name("clang-format")
    return subprocess.run([program, *how, *files()], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
