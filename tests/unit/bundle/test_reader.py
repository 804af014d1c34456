# SPDX-License-Identifier: Apache-2.0
"""A bundle written is a bundle read: as a folder, as zips, signed, pinned; and two builds give the same bytes."""

from __future__ import annotations

import gc
import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bespoke import install
from bespoke.bundle.archive import pack
from bespoke.bundle.reader import Bundle, read_bundle
from bespoke.bundle.signature import generate_key, public_key_of, sign_bundle
from bespoke.bundle.writer import BundleWriter
from bespoke.errors import BundleError, ConfigError, SignatureError
from tests.unit.bundle.example import groups, manifest_document, replace_manifest, write_example


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_example(tmp_path / "a.bundle")


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check(bundle: Bundle) -> None:
    """Everything that was written comes back."""
    assert bundle.manifest.model.name == "tests/tiny"
    for name, arrays in groups().items():
        views = bundle.mapped(name)
        assert views.keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(views[key], array)
            assert not views[key].flags.writeable
    assert bundle.read("licences/LICENSE.txt") == b"Apache License\n"
    assert bundle.verify_files() == len(bundle.names) == len(bundle.manifest.files)


def test_two_builds_in_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    first = write_example(tmp_path / "one" / "a.bundle")
    second = write_example(tmp_path / "two" / "deeper" / "b.bundle")
    assert contents(first) == contents(second)
    for folder in (first, second):
        pack(folder, folder.parent / "zips")
    for name in ("weights.zip", "method.zip"):
        assert (first.parent / "zips" / name).read_bytes() == (second.parent / "zips" / name).read_bytes()


def test_the_hashes_are_those_of_the_files(folder: Path) -> None:
    with read_bundle(folder) as bundle:
        assert bundle.manifest_sha256 == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
        for name, record in bundle.manifest.files.items():
            data = (folder / name).read_bytes()
            assert (record.size, record.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_a_folder_is_read(folder: Path) -> None:
    with read_bundle(folder) as bundle:
        check(bundle)
        assert bundle.path("text/turns.json") == folder / "text/turns.json"


def test_a_link_to_the_folder_may_be_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    with read_bundle(tmp_path / "link") as bundle:
        check(bundle)


def test_zips_are_read_in_place_and_installed(folder: Path, tmp_path: Path) -> None:
    weights, method = pack(folder, tmp_path / "zips")
    for given in (tmp_path / "zips", [method, weights], [weights, method]):
        with read_bundle(given) as bundle:
            check(bundle)
            with pytest.raises(BundleError, match="in a zip"):
                bundle.path("text/turns.json")
    assert contents(install([weights, method], tmp_path / "again")) == contents(folder)


def test_the_standard_zip_reader_agrees(folder: Path, tmp_path: Path) -> None:
    read: dict[str, bytes] = {}
    for path in pack(folder, tmp_path / "zips"):
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            for info in archive.infolist():
                assert info.compress_type == zipfile.ZIP_STORED
                read[info.filename] = archive.read(info)
    assert read == contents(folder)


def test_one_zip_holds_the_whole_bundle(folder: Path, tmp_path: Path) -> None:
    (whole,) = pack(folder, tmp_path / "assets", whole=True)
    with read_bundle(whole) as bundle:
        check(bundle)
    with zipfile.ZipFile(whole) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == contents(folder)
    assert contents(install(whole, tmp_path / "again")) == contents(folder)
    with pytest.raises(ConfigError, match="since and whole"):
        pack(folder, tmp_path / "assets", since=folder, whole=True)


def test_the_weights_zip_does_not_change_with_the_method(folder: Path, tmp_path: Path) -> None:
    document = manifest_document()
    document["methods"][0]["options"]["update"] = "sgd"
    other = write_example(tmp_path / "b.bundle", document)
    first, second = (pack(f, tmp_path / f"{f.name}.zips") for f in (folder, other))
    assert first[0].read_bytes() == second[0].read_bytes()
    assert first[1].read_bytes() != second[1].read_bytes()


def test_the_error_of_one_zip_alone_names_what_is_missing(folder: Path, tmp_path: Path) -> None:
    weights, method = pack(folder, tmp_path / "zips")
    with pytest.raises(BundleError, match="both zips"):
        read_bundle(method)
    with pytest.raises(BundleError, match=r"manifest\.json"):
        read_bundle(weights)
    with pytest.raises(BundleError, match="no archive"):
        read_bundle([])
    with pytest.raises(BundleError, match="another archive"):
        read_bundle([method, method])


def test_mapped_weights_outlive_the_bundle_and_are_unmapped_with_the_last_view(folder: Path) -> None:
    with read_bundle(folder) as bundle:
        views = bundle.mapped("weights/block_00.safetensors")
    assert maps(folder) == 1
    norm = views["input_norm"]
    del views
    assert norm.sum() == 8
    del norm
    gc.collect()
    assert maps(folder) == 0


def maps(folder: Path) -> int:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("needs /proc/self/maps")
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_opening_reads_no_weights_and_first_use_checks_them_once(folder: Path) -> None:
    path = folder / "weights/block_00.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with read_bundle(folder) as bundle:
        for use in (bundle.mapped, bundle.read, bundle.path):
            with pytest.raises(BundleError, match="sha256"):
                use("weights/block_00.safetensors")
        with pytest.raises(BundleError, match="block_00"):
            bundle.verify_files()
        bundle.mapped("weights/embedding.safetensors")


@pytest.mark.slow
def test_no_descriptor_is_left_open(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "zips")
    gc.collect()  # what earlier tests left behind is not counted
    before = len(os.listdir("/dev/fd"))
    for given in (folder, tmp_path / "zips"):
        with read_bundle(given) as bundle:
            check(bundle)
            with pytest.raises(BundleError):
                bundle.read("no/such")
        with pytest.raises(SignatureError):
            read_bundle(given, pin_sha256="0" * 64)
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before


def test_the_sum_of_the_manifest_is_what_sha256sum_writes(folder: Path) -> None:
    digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert (folder / "manifest.sha256").read_text() == f"{digest}  manifest.json\n"
    (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes() + b"\n")
    with pytest.raises(BundleError, match="another sum"):
        read_bundle(folder)


def test_a_pinned_manifest_is_the_only_one(folder: Path) -> None:
    pin = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    read_bundle(folder, pin_sha256=pin.upper()).close()
    with pytest.raises(SignatureError, match="pinned"):
        read_bundle(folder, pin_sha256=pin[::-1])
    replace_manifest(folder, (folder / "manifest.json").read_bytes() + b"\n")
    read_bundle(folder).close()
    with pytest.raises(SignatureError, match="pinned"):
        read_bundle(folder, pin_sha256=pin)


def test_a_signature_holds_for_these_bytes_and_this_key(folder: Path, tmp_path: Path) -> None:
    private, public = generate_key()
    assert public_key_of(private) == public
    with pytest.raises(SignatureError, match="no signature"):
        read_bundle(folder, public_key=public)
    sign_bundle(folder, private)
    install(pack(folder, tmp_path / "zips"), tmp_path / "again")
    for given in (folder, tmp_path / "zips", tmp_path / "again"):
        with read_bundle(given, public_key=public) as bundle:
            assert bundle.signed
            check(bundle)
        with pytest.raises(SignatureError, match="another key"):
            read_bundle(given, public_key=generate_key()[1])
    with pytest.raises(SignatureError, match="32 raw bytes"):
        read_bundle(folder, public_key=public[:-1])
    replace_manifest(folder, (folder / "manifest.json").read_bytes() + b" ")
    with pytest.raises(SignatureError, match="other bytes"):
        read_bundle(folder, public_key=public)


def test_a_key_that_is_none_is_refused(folder: Path) -> None:
    with pytest.raises(SignatureError, match="private key"):
        sign_bundle(folder, b"-----BEGIN NOTHING-----")
    with pytest.raises(SignatureError):
        sign_bundle(folder / "plans", generate_key()[0])


def test_a_build_that_fails_leaves_the_old_bundle_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    before = contents(folder)
    with pytest.raises(FileNotFoundError), BundleWriter(folder) as writer:
        writer.add_file("plans/new.json", tmp_path / "not_there")
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.bundle"]


def test_a_build_replaces_a_bundle_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    document = manifest_document()
    document["context_length"] = 32
    write_example(folder, document)
    with read_bundle(folder) as bundle:
        assert bundle.manifest.context_length == 32
    assert [path.name for path in tmp_path.iterdir()] == ["a.bundle"]
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letter.txt").write_text("dear")
    with pytest.raises(BundleError, match="no bundle"):
        BundleWriter(tmp_path / "precious")


def test_the_writer_refuses_what_the_reader_would(folder: Path, tmp_path: Path) -> None:
    with BundleWriter(tmp_path / "b.bundle") as writer:
        for name in ("../a", "a\\b", "manifest.json", "manifest.sha256", "signature", ".a", ""):
            with pytest.raises(BundleError, match="file name"):
                writer.add_bytes(name, b"")
    with read_bundle(folder) as bundle:
        manifest = bundle.manifest
    with BundleWriter(tmp_path / "b.bundle") as writer:
        with pytest.raises(BundleError, match="names 'adapter"):
            writer.finish(manifest)
        for name in manifest.files:
            writer.add_file(name, folder / name)
        writer.add_bytes("idle.txt", b"")
        with pytest.raises(BundleError, match=r"'idle\.txt', which no field names"):
            writer.finish(manifest)
