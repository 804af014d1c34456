# SPDX-License-Identifier: Apache-2.0
"""Folders and zips made to lead a reader astray: links, names that climb, pipes, strangers, huge and deep documents."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.bundle.archive import pack
from bespoke.bundle.reader import open_bundle
from bespoke.bundle.stored_zip import write_zip
from bespoke.errors import BundleError
from tests.unit.bundle.example import replace_manifest
from tests.unit.bundle.test_manifest import HOSTILE_NAMES

LICENCE = "licences/LICENSE.txt"


def refused(given: Any, *, name: str = LICENCE) -> BundleError:
    """The error of opening or, at the latest, of using the file."""
    with pytest.raises(BundleError) as caught, open_bundle(given) as bundle:
        bundle.read(name)
    assert caught.value.got
    assert caught.value.expected
    assert caught.value.next_step
    return caught.value


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


@pytest.mark.parametrize(
    "attack",
    [
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
    ],
)
def test_a_folder_with_traps_is_refused_and_nothing_outside_is_opened(
    bundle: Path, tmp_path: Path, opened: list[str], attack: Callable[[Path, Path], None]
) -> None:
    attack(bundle, tmp_path / "outside")
    opened.clear()
    start = time.perf_counter()
    refused(bundle)
    assert time.perf_counter() - start < 5
    check_opened(opened, bundle)


def check_opened(opened: list[str], bundle: Path) -> None:
    """Inside the bundle files are opened by relative names of one component; from outside only the folder itself."""
    for name in opened:
        if name not in (str(bundle), "/proc/self/fd"):
            assert "/" not in name, name
            assert name != "..", name


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_climbs_is_refused_and_not_opened(bundle: Path, opened: list[str], name: str) -> None:
    def change(document: dict[str, Any]) -> None:
        document["licences"] = [name]
        document["files"][name] = document["files"].pop(LICENCE)

    edit(bundle, change)
    opened.clear()
    assert "manifest.json" in str(refused(bundle))
    check_opened(opened, bundle)


def test_asking_for_an_unlisted_name_reads_nothing(bundle: Path, tmp_path: Path, opened: list[str]) -> None:
    (tmp_path / "here" / "secret").write_text("secret")
    with open_bundle(bundle) as reader:
        opened.clear()
        for name in (
            "../secret",
            str(tmp_path / "here" / "secret"),
            "manifest.json",
            "manifest.sha256",
            "signature",
            "licences",
            "",
            "a\0",
        ):
            for use in (reader.read, reader.mapped, reader.path):
                with pytest.raises(BundleError):
                    use(name)
    assert opened == []


def test_a_link_put_in_after_opening_is_not_followed(bundle: Path, tmp_path: Path) -> None:
    with open_bundle(bundle) as reader:
        link_to_folder(bundle, tmp_path / "outside")
        with pytest.raises(BundleError):
            reader.read(LICENCE)


@pytest.mark.parametrize(
    ("data", "what"),
    [
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
    ],
)
def test_a_manifest_that_costs_or_confuses_is_refused_fast(bundle: Path, data: bytes, what: str) -> None:
    replace_manifest(bundle, data)
    start = time.perf_counter()
    assert what in str(refused(bundle))
    assert time.perf_counter() - start < 5


def test_huge_counts_and_sizes_are_refused(bundle: Path) -> None:
    document = json.loads((bundle / "manifest.json").read_bytes())
    record = document["files"][LICENCE]
    for change in (
        {"files": {**document["files"], **{f"f/{index}": record for index in range(20_000)}}},
        {"methods": [{**document["methods"][0], "name": str(index)} for index in range(100)]},
        {"licences": [LICENCE] * 100},
        {"files": {**document["files"], LICENCE: {**record, "size": 2**63}}},
        {"files": {**document["files"], LICENCE: {**record, "size": 2**40}}},
        {"context_length": 10**19},
    ):
        replace_manifest(bundle, json.dumps({**document, **change}).encode())
        refused(bundle)


def many_files(bundle: Path) -> None:
    (bundle / "many").mkdir()
    for index in range(16_500):
        os.close(os.open(bundle / "many" / str(index), os.O_CREAT | os.O_WRONLY))


@pytest.mark.slow
def test_a_folder_of_very_many_files_is_refused_while_counting(bundle: Path) -> None:
    many_files(bundle)
    assert "more than 16384 files" in str(refused(bundle))


# ---- zips ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", ZIPS)
def test_a_zip_of_another_form_is_refused(bundle: Path, tmp_path: Path, kind: str) -> None:
    ZIPS[kind](bundle, tmp_path / "a.zip")
    refused(tmp_path / "a.zip")


def test_the_same_zip_without_a_trap_is_read(bundle: Path, tmp_path: Path) -> None:
    ours(bundle, tmp_path / "a.zip")
    with open_bundle(tmp_path / "a.zip") as reader:
        assert reader.verify_files()


def test_a_zip_of_other_weights_is_refused_by_hash(bundle: Path, tmp_path: Path) -> None:
    _weights, method = pack(bundle, tmp_path / "zips")
    path = bundle / "weights/block_00.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    names = ["weights/block_00.safetensors", "weights/embedding.safetensors"]
    write_zip(tmp_path / "other.zip", [(name, bundle / name) for name in names])
    with open_bundle([method, tmp_path / "other.zip"]) as reader:
        with pytest.raises(BundleError, match=r"block_00.*sha256"):
            reader.mapped("weights/block_00.safetensors")
        reader.mapped("weights/embedding.safetensors")
