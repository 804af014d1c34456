# SPDX-License-Identifier: Apache-2.0
"""Folders and zips made to lead a reader astray: links, names that climb, pipes, strangers, huge and deep documents."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.bundle.archive import pack
from bespoke.bundle.reader import read_bundle
from bespoke.bundle.stored_zip import write_zip
from bespoke.errors import BundleError
from tests.malformed_bundles.hostile import (
    DOCUMENTS,
    LICENCE,
    TRAPS,
    ZIPS,
    edit,
    link_to_folder,
    many_files,
    ours,
)
from tests.unit.bundle.example import replace_manifest
from tests.unit.bundle.manifests import HOSTILE_NAMES


def refused(given: Any, *, name: str = LICENCE) -> BundleError:
    """The error of opening or, at the latest, of using the file."""
    with pytest.raises(BundleError) as caught, read_bundle(given) as bundle:
        bundle.read(name)
    assert caught.value.got
    assert caught.value.expected
    assert caught.value.next_step
    return caught.value


@pytest.mark.parametrize("attack", TRAPS)
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
    with read_bundle(bundle) as reader:
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
    with read_bundle(bundle) as reader:
        link_to_folder(bundle, tmp_path / "outside")
        with pytest.raises(BundleError):
            reader.read(LICENCE)


@pytest.mark.parametrize(("data", "what"), DOCUMENTS)
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


@pytest.mark.slow
def test_a_folder_of_very_many_files_is_refused_while_counting(bundle: Path) -> None:
    many_files(bundle)
    assert "more than 16384 files" in str(refused(bundle))


# ---- zips ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ZIPS)
def test_a_zip_of_another_form_is_refused(bundle: Path, tmp_path: Path, kind: str) -> None:
    ZIPS[kind](bundle, tmp_path / "a.zip")
    refused(tmp_path / "a.zip")


def test_the_same_zip_without_a_trap_is_read(bundle: Path, tmp_path: Path) -> None:
    ours(bundle, tmp_path / "a.zip")
    with read_bundle(tmp_path / "a.zip") as reader:
        assert reader.verify_files()


def test_a_zip_of_other_weights_is_refused_by_hash(bundle: Path, tmp_path: Path) -> None:
    _weights, method = pack(bundle, tmp_path / "zips")
    path = bundle / "weights/block_00.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    names = ["weights/block_00.safetensors", "weights/embedding.safetensors"]
    write_zip(tmp_path / "other.zip", [(name, bundle / name) for name in names])
    with read_bundle([method, tmp_path / "other.zip"]) as reader:
        with pytest.raises(BundleError, match=r"block_00.*sha256"):
            reader.mapped("weights/block_00.safetensors")
        reader.mapped("weights/embedding.safetensors")
