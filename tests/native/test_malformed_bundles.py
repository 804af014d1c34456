# SPDX-License-Identifier: Apache-2.0
"""What tests/malformed_bundles does to the Python reader, done to the core's: refused alike, or read alike, and never a crash."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.bundle.archive import pack
from bespoke.bundle.signature import generate_key
from bespoke.bundle.stored_zip import write_zip
from bespoke.errors import BespokeError, BundleError, SignatureError
from tests.malformed_bundles import hostile
from tests.malformed_bundles.flips import flips, header_bytes
from tests.native.damaged_bundles import bundle, keys, reader
from tests.native.format_lab import CoreReader, refused
from tests.support.bundles import stories_bundle
from tests.unit.bundle.example import replace_manifest
from tests.unit.bundle.manifests import HOSTILE_NAMES

__all__ = ["bundle", "keys", "reader", "stories_bundle"]

LICENCE = hostile.LICENCE
KINDS = [
    "weights/block_00.safetensors",
    "data/train.safetensors",
    "graphs/scale.json",
    "plans/mesp_16.json",
    "licences/LICENSE.txt",
]


def opened(reader: CoreReader, given: Path, **values: Any) -> BespokeError:
    """The error of opening or, at the latest, of using the licence."""
    error = refused(reader, "bundle", given, **{"files": [LICENCE], **values})
    assert isinstance(error, BundleError), repr(error)
    return error


def test_the_bundle_without_a_trap_is_read_from_folder_and_zips(
    reader: CoreReader, bundle: Path, tmp_path: Path, keys: tuple[bytes, bytes]
) -> None:
    pin = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    weights = ["weights/block_00.safetensors", "weights/embedding.safetensors"]
    whole = reader.bundle(bundle, files=["*"], tensors=weights, pin=pin.upper(), key=list(keys[1]))
    assert len(whole["files"]) == len(whole["manifest"]["files"])
    pack(bundle, tmp_path / "zips")
    hostile.ours(bundle, tmp_path / "a.zip")
    for path in (tmp_path / "zips", tmp_path / "a.zip"):
        assert reader.bundle(path, files=["*"], tensors=weights, pin=pin, key=list(keys[1])) == whole
    (tmp_path / "link").symlink_to(bundle)  # the folder itself may be one
    assert reader.bundle(tmp_path / "link", files=["*"], tensors=weights) == whole


@pytest.mark.parametrize("trap", hostile.TRAPS)
def test_a_folder_with_traps_is_refused(
    reader: CoreReader, bundle: Path, tmp_path: Path, trap: Callable[[Path, Path], None]
) -> None:
    trap(bundle, tmp_path / "outside")
    opened(reader, bundle)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_climbs_is_refused(reader: CoreReader, bundle: Path, name: str) -> None:
    def change(document: dict[str, Any]) -> None:
        document["licences"] = [name]
        document["files"][name] = document["files"].pop(LICENCE)

    hostile.edit(bundle, change)
    assert "manifest.json" in str(opened(reader, bundle))


def test_asking_for_an_unlisted_name_reads_nothing(reader: CoreReader, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "here" / "secret").write_text("secret")
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
        assert "does not list" in opened(reader, bundle, files=[name]).got


@pytest.mark.parametrize("data", [data for data, _ in hostile.DOCUMENTS])
def test_a_manifest_that_costs_or_confuses_is_refused(reader: CoreReader, bundle: Path, data: bytes) -> None:
    replace_manifest(bundle, data)
    assert "manifest.json" in opened(reader, bundle).subject


def test_huge_counts_and_sizes_are_refused(reader: CoreReader, bundle: Path) -> None:
    document = json.loads((bundle / "manifest.json").read_bytes())
    record = document["files"][LICENCE]
    for change in (
        {"files": {**document["files"], **{f"f/{index}": record for index in range(20_000)}}},
        {"methods": [{**document["methods"][0], "name": str(index)} for index in range(100)]},
        {"licences": [LICENCE] * 100},
        {"files": {**document["files"], LICENCE: {**record, "size": 2**63}}},
        {"files": {**document["files"], LICENCE: {**record, "size": 2**40}}},
        {"context_length": 10**19},
        {"context_length": 10**20},
    ):
        replace_manifest(bundle, json.dumps({**document, **change}).encode())
        opened(reader, bundle)


def test_pin_and_key_that_do_not_fit_are_refused_as_such(reader: CoreReader, bundle: Path) -> None:
    other = list(generate_key()[1])
    for values in ({"pin": "0" * 64}, {"pin": "x"}, {"key": other}, {"key": [0] * 32}):
        assert type(opened(reader, bundle, **values)) is SignatureError
    (bundle / "signature").unlink()
    assert opened(reader, bundle, key=other).got == "no signature"
    reader.bundle(bundle)


# ---- flipped, cut and added bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_byte_of_a_listed_file_is_refused_by_its_hash(reader: CoreReader, bundle: Path, name: str) -> None:
    size = header_bytes(bundle / name)
    for _ in flips(bundle / name, range(0, size, max(1, size // 12))):
        error = opened(reader, bundle, files=[name])
        assert error.subject.endswith(name)
        assert "sha256" in error.got


@pytest.mark.parametrize(("name", "step"), [("manifest.json", 97), ("manifest.sha256", 5), ("signature", 3)])
def test_a_flipped_byte_in_an_unlisted_file_is_refused(
    reader: CoreReader, bundle: Path, name: str, step: int, keys: tuple[bytes, bytes]
) -> None:
    pin = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    for _ in flips(bundle / name, range(0, (bundle / name).stat().st_size, step)):
        opened(reader, bundle, key=list(keys[1]))
        if name != "signature":
            opened(reader, bundle, pin=pin)
            opened(reader, bundle)


@pytest.mark.parametrize("name", [*KINDS, "manifest.json", "manifest.sha256", "signature"])
def test_a_cut_longer_or_missing_file_is_refused(
    reader: CoreReader, bundle: Path, name: str, keys: tuple[bytes, bytes]
) -> None:
    path = bundle / name
    whole = path.read_bytes()
    for data in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"\0", None):
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        error = opened(reader, bundle, key=list(keys[1]))
        assert ("signature" if name == "manifest.json" and data is not None else name) in error.subject


# ---- zips ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", hostile.ZIPS)
def test_a_zip_of_another_form_is_refused(reader: CoreReader, bundle: Path, tmp_path: Path, kind: str) -> None:
    hostile.ZIPS[kind](bundle, tmp_path / "a.zip")
    opened(reader, tmp_path / "a.zip")


def test_flipped_and_cut_bytes_of_a_zip_outside_its_files_are_refused(
    reader: CoreReader, bundle: Path, tmp_path: Path
) -> None:
    hostile.ours(bundle, tmp_path / "a.zip")
    path = tmp_path / "a.zip"
    whole = path.read_bytes()
    directory = int.from_bytes(whole[-6:-2], "little")
    places = [*range(34), *range(100, 16000, 997), *range(directory, len(whole), 7), len(whole) - 1]
    for _ in flips(path, iter(places)):
        opened(reader, path)
    for size in {*range(0, len(whole), 20011), len(whole) - 1, len(whole) - 21, len(whole) - 22}:
        path.write_bytes(whole[:size])
        opened(reader, path)


def test_a_zip_of_other_weights_is_refused_by_hash(reader: CoreReader, bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "zips"
    pack(bundle, folder)
    path = bundle / "weights/block_00.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    write_zip(
        folder / "weights.zip",
        [(name, bundle / name) for name in ("weights/block_00.safetensors", "weights/embedding.safetensors")],
    )
    assert "sha256" in opened(reader, folder, tensors=["weights/block_00.safetensors"]).got
    reader.bundle(folder, tensors=["weights/embedding.safetensors"])
    (folder / "weights.zip").unlink()
    assert "no such entry" in opened(reader, folder).got


@pytest.mark.slow
def test_a_folder_of_very_many_files_is_refused_while_counting(reader: CoreReader, bundle: Path) -> None:
    hostile.many_files(bundle)
    assert "more than 16384 files" in opened(reader, bundle).got
    shutil.rmtree(bundle / "many")
    for index in range(16):
        os.close(os.open(bundle / f"stranger_{index}", os.O_CREAT | os.O_WRONLY))
    assert "does not list" in opened(reader, bundle).got
