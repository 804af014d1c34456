# SPDX-License-Identifier: Apache-2.0
"""Folders and zips made to lead a reader astray."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke.bundle.stored_zip import write_zip
from tests.unit.bundle.example import replace_manifest

LICENCE = "licences/LICENSE.txt"


def edit(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((bundle / "manifest.json").read_bytes())
    change(document)
    replace_manifest(bundle, json.dumps(document).encode())


def link_to_file(bundle: Path, outside: Path) -> None:
    shutil.move(bundle / LICENCE, outside)
    (bundle / LICENCE).symlink_to(outside)


def link_to_folder(bundle: Path, outside: Path) -> None:
    shutil.move(bundle / "licences", outside)
    (bundle / "licences").symlink_to(outside)


def relative_link(bundle: Path, outside: Path) -> None:
    shutil.move(bundle / LICENCE, outside)
    (bundle / LICENCE).symlink_to(os.path.relpath(outside, bundle / "licences"))


def link_inside(bundle: Path, outside: Path) -> None:
    (bundle / LICENCE).rename(bundle / "licences" / "other")
    (bundle / LICENCE).symlink_to("other")


def dangling_link(bundle: Path, outside: Path) -> None:
    (bundle / "licences" / "idle").symlink_to(outside)


def link_as_manifest(bundle: Path, outside: Path) -> None:
    shutil.move(bundle / "manifest.json", outside)
    (bundle / "manifest.json").symlink_to(outside)


def pipe(bundle: Path, outside: Path) -> None:
    (bundle / LICENCE).unlink()
    os.mkfifo(bundle / LICENCE)


def folder_as_file(bundle: Path, outside: Path) -> None:
    (bundle / LICENCE).unlink()
    (bundle / LICENCE).mkdir()


def stranger(bundle: Path, outside: Path) -> None:
    (bundle / "weights" / "more.safetensors").write_bytes(b"")


def stranger_with_a_name_of_bytes(bundle: Path, outside: Path) -> None:
    Path(os.fsdecode(os.fsencode(bundle) + b"/\xff\n")).write_bytes(b"")


def deep_folders(bundle: Path, outside: Path) -> None:
    (bundle / ("d/" * 40)).mkdir(parents=True)


def no_manifest(bundle: Path, outside: Path) -> None:
    (bundle / "manifest.json").unlink()


def many_files(bundle: Path) -> None:
    (bundle / "many").mkdir()
    for index in range(16_500):
        os.close(os.open(bundle / "many" / str(index), os.O_CREAT | os.O_WRONLY))


def with_standard_library(**options: Any) -> Callable[[Path, Path], None]:
    """A zip that is sound for everybody else."""

    def make(bundle: Path, path: Path) -> None:
        with zipfile.ZipFile(path, "w", options.get("compression", zipfile.ZIP_STORED)) as archive:
            for file in sorted(bundle.rglob("*")):
                if file.is_file() or options.get("folders"):
                    info = zipfile.ZipInfo.from_file(file, options.get("prefix", "") + str(file.relative_to(bundle)))
                    info.compress_type = archive.compression
                    info.external_attr = options.get("mode", info.external_attr >> 16) << 16
                    archive.writestr(info, file.read_bytes() if file.is_file() else b"")
            archive.comment = options.get("comment", b"")

    return make


def ours(bundle: Path, path: Path, extra: tuple[tuple[str, str], ...] = ()) -> None:
    names = sorted(p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file())
    write_zip(path, [(name, bundle / name) for name in names] + [(name, bundle / source) for name, source in extra])


def patched(change: Callable[[bytearray], Any]) -> Callable[[Path, Path], None]:
    def make(bundle: Path, path: Path) -> None:
        ours(bundle, path)
        data = bytearray(path.read_bytes())
        path.write_bytes(change(data) or data)

    return make


def end_of(data: bytearray) -> tuple[int, ...]:
    return struct.unpack("<4s4H2LH", data[-22:])[3:7]


def set_count(data: bytearray) -> None:
    data[-14:-10] = b"\xff\xff\xff\xff"


def overlap(data: bytearray) -> None:
    """The second entry's offset becomes the first's."""
    _, _, _, begin = end_of(data)
    second = data.index(b"PK\x01\x02", begin + 4)
    data[second + 42 : second + 46] = data[begin + 42 : begin + 46]


def sizes_beyond(data: bytearray) -> None:
    _, _, _, begin = end_of(data)
    data[begin + 20 : begin + 28] = struct.pack("<2L", 2**32 - 1, 2**32 - 1)
    data[18:26] = struct.pack("<2L", 2**32 - 1, 2**32 - 1)


def renamed_locally(data: bytearray) -> None:
    data[30] ^= 1


ZIPS: dict[str, Callable[[Path, Path], None]] = {
    "compressed": with_standard_library(compression=zipfile.ZIP_DEFLATED),
    "not aligned": with_standard_library(),
    "with folders": with_standard_library(folders=True),
    "with links": with_standard_library(mode=stat.S_IFLNK | 0o777),
    "with a comment": with_standard_library(comment=b"hello"),
    "climbing": with_standard_library(prefix="../"),
    "absolute": with_standard_library(prefix="/"),
    "a name twice": lambda bundle, path: ours(bundle, path, ((LICENCE, LICENCE),)),
    "a stranger": lambda bundle, path: ours(bundle, path, (("z/more", LICENCE),)),
    "a climbing name": lambda bundle, path: ours(bundle, path, (("../more", LICENCE),)),
    "prefixed": patched(lambda data: b"#!/bin/sh\n" + data),
    "suffixed": patched(lambda data: data + b"\0"),
    "other count": patched(set_count),
    "overlapping": patched(overlap),
    "beyond the end": patched(sizes_beyond),
    "two names": patched(renamed_locally),
    "only an end": patched(lambda data: data[-22:]),
    "nothing": patched(lambda data: b"\0"),
}

TRAPS = [
    link_to_file,
    link_to_folder,
    relative_link,
    link_inside,
    dangling_link,
    link_as_manifest,
    pipe,
    folder_as_file,
    stranger,
    stranger_with_a_name_of_bytes,
    deep_folders,
    no_manifest,
]

DOCUMENTS = [
    (b'{"format": "bespoke-bundle", "format": "bespoke-bundle"}', "twice"),
    (b'{"format":' + b"[" * 400_000, "nesting"),
    (b'{"format":' + b"[" * 5_000_000, "items"),
    (b"[" * 100_000 + b"]" * 100_000, "nesting"),
    (b"[" + b"0," * 600_000 + b"0]", "items"),
    (b" " * (8 * 2**20 + 1), "bytes"),
    (b'{"a": 1e400}', "1e400"),
    (b'{"a": ' + b"1" * 100_000 + b"}", "100000 characters"),
    (b"\x80\x02}.", "0x80"),
    (b"", "not JSON"),
    (b"null", "got nothing"),
]
