# SPDX-License-Identifier: Apache-2.0
"""check_libraries.py ABI FOLDER [--glibc] [--absent PATH ...]: what build_with_ndk.sh has made is what an app can ship.

Of the ABI, aligned to pages of 16 KB, without a run path; the core exports what the headers declare, the binding JNI_OnLoad, and
neither anything else; no path of the machine that built them stands in them. --glibc: built by another toolchain, as the tests do.
"""

import argparse
import re
from pathlib import Path

import elf

INCLUDE = Path(__file__).resolve().parents[2] / "native" / "include"
# What every Android has, and each other.
SYSTEM = {"libc.so", "libm.so", "libdl.so", "liblog.so", "libandroid.so", "libbespoke_core.so"}


def expected_exports() -> dict[str, set[str]]:
    headers = "".join(path.read_text(encoding="utf-8") for path in INCLUDE.glob("*.h"))
    functions = set(re.findall(r"BESPOKE_(?:API|CHECKED) [^;(]*[ *](bespoke_[a-z_]+)\(", headers))
    return {"libbespoke_core.so": functions, "libbespoke_jni.so": {"JNI_OnLoad"}}


def faults(folder: Path, abi: str, is_glibc: bool, absent: list[str]) -> list[str]:
    found = []
    for name, expected in expected_exports().items():
        path = folder / name
        if not path.is_file():
            found.append(f"{path}: got no such file")
            continue
        library, exported, data = elf.check(path, abi), elf.exports(path), path.read_bytes()
        if exported != expected:
            found.append(f"{path}: got {sorted(exported - expected)} exported and {sorted(expected - exported)} not")
        if library.is_glibc != is_glibc:
            found.append(f"{path}: got a library for {'glibc' if library.is_glibc else 'Android'}")
        if library.run_paths:
            found.append(f"{path}: got the run path {':'.join(library.run_paths)}")
        if not is_glibc and set(library.needed) - SYSTEM:
            found.append(f"{path}: needs {sorted(set(library.needed) - SYSTEM)}, which no Android has")
        found += [f"{path}: got {place} in it, a path of this machine" for place in absent if place.encode() in data]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("abi")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--glibc", action="store_true")
    parser.add_argument("--absent", nargs="*", default=[])
    given = parser.parse_args()
    problems = faults(given.folder, given.abi, given.glibc, given.absent)
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"{given.folder}: libraries for {given.abi}, as expected")
