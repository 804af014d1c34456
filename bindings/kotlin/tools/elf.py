# SPDX-License-Identifier: Apache-2.0
"""What of a native library (64-bit ELF) an Android app depends on: its ABI, how its segments are aligned, what it needs."""

import struct
from pathlib import Path
from typing import NamedTuple

PAGE = 16_384
LOAD, DYNAMIC = 1, 2  # kinds of segments
NEEDED, STRINGS = 1, 5  # tags of the dynamic table
RUN_PATHS = 15, 29
DYNAMIC_SYMBOLS = 11  # kind of a section
MACHINES = {62: "x86_64", 183: "arm64-v8a"}


class Library(NamedTuple):
    abi: str
    alignment: int  # the least of its segments
    needed: tuple[str, ...]
    run_paths: tuple[str, ...]

    @property
    def is_glibc(self) -> bool:
        """Built for a Linux with glibc: no Android loads it."""
        return any(name.startswith("libc.so.6") for name in self.needed)


def read(path: Path) -> Library:
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit(f"{path}: got no 64-bit little-endian ELF; expected a native library")
    (machine,) = struct.unpack_from("<H", data, 18)
    begin, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<2H", data, 54)
    segments = [struct.unpack_from("<2I6Q", data, begin + size * i) for i in range(count)]
    loaded = [segment for segment in segments if segment[0] == LOAD]

    def place(address: int) -> int:
        return next(
            offset + address - at for _, _, offset, at, _, length, _, _ in loaded if at <= address < at + length
        )

    table: list[tuple[int, int]] = []
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind == DYNAMIC:
            table += struct.iter_unpack("<2Q", data[offset : offset + length])
    strings = place(next(value for tag, value in table if tag == STRINGS))

    def texts(*tags: int) -> tuple[str, ...]:
        found = [strings + value for tag, value in table if tag in tags]
        return tuple(data[at : data.index(b"\0", at)].decode() for at in found)

    return Library(
        MACHINES.get(machine, f"machine {machine}"), min(s[7] for s in loaded), texts(NEEDED), texts(*RUN_PATHS)
    )


def exports(path: Path) -> set[str]:
    """Names of the functions and data that others may use."""
    data = path.read_bytes()
    (begin,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<2H", data, 58)
    sections = [struct.unpack_from("<2I4Q2I2Q", data, begin + size * i) for i in range(count)]
    found = set()
    for _, kind, _, _, offset, length, names, _, _, entry in sections:
        if kind == DYNAMIC_SYMBOLS:
            for at in range(offset, offset + length, entry):
                name, info, visibility, section, _, _ = struct.unpack_from("<I2BH2Q", data, at)
                if (
                    section and section < 0xFF00 and info >> 4 in (1, 2) and visibility & 3 == 0
                ):  # defined, global or weak, visible
                    text = sections[names][4] + name
                    found.add(data[text : data.index(b"\0", text)].decode())
    return found


def check(path: Path, abi: str) -> Library:
    """Of this ABI, and aligned to pages of 16 KB; of libraries that no Android loads and that only stand in, ours alone are."""
    library = read(path)
    if library.abi != abi:
        raise SystemExit(f"{path}: got a library for {library.abi}; expected one for {abi}")
    if library.alignment % PAGE and not (library.is_glibc and not path.name.startswith("libbespoke_")):
        raise SystemExit(
            f"{path}: got segments aligned to {library.alignment} bytes; expected {PAGE}, the pages of Android 15. "
            "Link it with -Wl,-z,max-page-size=16384"
        )
    if library.run_paths and not library.is_glibc:
        found = ":".join(library.run_paths)
        raise SystemExit(
            f"{path}: got the run path {found}; expected none, since Android has an app's libraries together"
        )
    return library
