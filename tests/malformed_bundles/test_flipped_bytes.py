# SPDX-License-Identifier: Apache-2.0
"""A flipped, cut or added byte anywhere in a bundle is a BundleError that names the file, and never anything else.

By default a sample; `-m slow` flips every header byte of every kind of file and prints the counts.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bespoke.bundle.archive import pack
from bespoke.bundle.reader import Bundle, read_bundle
from bespoke.errors import BundleError
from bespoke.format.program_json import parse_program
from bespoke.format.tensors import map_tensors
from tests.malformed_bundles.flips import flips, header_bytes
from tests.unit.bundle.example import replace_manifest

# One file of each kind, with the way in which a runtime uses it.
KINDS: dict[str, Callable[[Bundle, str], object]] = {
    "weights/block_00.safetensors": Bundle.mapped,
    "adapter/initial.safetensors": Bundle.mapped,
    "data/train.safetensors": Bundle.mapped,
    "golden/golden.safetensors": Bundle.mapped,
    "graphs/scale.json": Bundle.read,
    "plans/mesp_16.json": Bundle.read,
    "text/tokenizer.json": Bundle.path,
    "text/turns.json": Bundle.read,
    "licences/LICENSE.txt": Bundle.read,
}


def refuse_flips_of_a_listed_file(bundle: Path, name: str, step: int) -> int:
    path = bundle / name
    count = 0
    for position in flips(path, range(0, header_bytes(path), step)):
        with read_bundle(bundle) as opened, pytest.raises(BundleError) as caught:
            KINDS[name](opened, name)
        assert caught.value.subject.endswith(name), position
        assert "sha256" in caught.value.got
        count += 1
    return count


def refuse_flips_of_an_unlisted_file(bundle: Path, name: str, key: bytes, step: int) -> int:
    """The files that the manifest does not list, with a pin, with a key and (the signature aside) with neither."""
    path = bundle / name
    pin = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    count = 0
    for _ in flips(path, range(0, path.stat().st_size, step)):
        with pytest.raises(BundleError):
            read_bundle(bundle, public_key=key)
        if name != "signature":
            with pytest.raises(BundleError):
                read_bundle(bundle, pin_sha256=pin)
            with pytest.raises(BundleError):
                read_bundle(bundle)
        count += 1
    return count


def flip_without_sum(bundle: Path, step: int) -> tuple[int, int]:
    """(flipped, refused) where the sum fits the flipped manifest: refused, or another manifest of the same files."""
    whole = (bundle / "manifest.json").read_bytes()
    refused = 0
    positions = range(0, len(whole), step)
    for position in positions:
        replace_manifest(
            bundle, whole[:position] + bytes([whole[position] ^ (1 << position % 8)]) + whole[position + 1 :]
        )
        try:
            with read_bundle(bundle) as opened:
                opened.verify_files()
        except BundleError:
            refused += 1
    replace_manifest(bundle, whole)
    return len(positions), refused


def refuse_flips_of_a_zip(bundle: Path, folder: Path, step: int, padding_step: int) -> tuple[int, int]:
    """(bytes of headers, directory and end; bytes of padding) flipped: all that is no file's content."""
    counts = [0, 0]
    for path in pack(bundle, folder):
        others = [other for other in folder.iterdir() if other != path]
        with zipfile.ZipFile(path) as archive:
            entries = [(info.header_offset, len(info.filename), info.file_size) for info in archive.infolist()]
            directory = archive.start_dir
        headers, padding = list(range(directory, path.stat().st_size)), []
        for (begin, name, size), end in zip(entries, [entry[0] for entry in entries[1:]] + [directory], strict=True):
            headers += range(begin, begin + 34 + name)  # with the 4 bytes that begin the padding's extra field
            padding += range(begin + 34 + name, end - size)
        for kind, positions in enumerate((headers[::step], padding[::padding_step])):
            for _ in flips(path, iter(positions)):
                with pytest.raises(BundleError):
                    read_bundle([path, *others])
                counts[kind] += 1
    return counts[0], counts[1]


def without_hash(bundle: Path, graph: bytes, step: int) -> tuple[int, int]:
    """(flipped, refused) where the readers of a format see the bytes themselves: refused or sound, nothing else."""
    count = refused = 0
    for name in ("weights/block_00.safetensors", "data/train.safetensors"):
        path = bundle / name
        for _ in flips(path, range(0, header_bytes(path), step)):
            count += 1
            try:
                map_tensors(path)
            except BundleError:
                refused += 1
    for position in range(0, len(graph), step):
        doctored = bytearray(graph)
        doctored[position] ^= 1 << position % 8
        count += 1
        try:
            parse_program(bytes(doctored), "graph")
        except BundleError:
            refused += 1
    return count, refused


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_byte_of_a_listed_file_is_refused(bundle: Path, name: str) -> None:
    assert refuse_flips_of_a_listed_file(bundle, name, max(1, header_bytes(bundle / name) // 12)) > 1


@pytest.mark.parametrize(("name", "step"), [("manifest.json", 97), ("manifest.sha256", 5), ("signature", 3)])
def test_a_flipped_byte_in_an_unlisted_file_is_refused(
    bundle: Path, name: str, step: int, keys: tuple[bytes, bytes]
) -> None:
    refuse_flips_of_an_unlisted_file(bundle, name, keys[1], step)


def test_a_flipped_manifest_with_a_sum_that_fits_is_refused_or_sound(bundle: Path) -> None:
    flip_without_sum(bundle, 61)


def test_a_flipped_byte_of_a_zip_outside_its_files_is_refused(bundle: Path, tmp_path: Path) -> None:
    headers, padding = refuse_flips_of_a_zip(bundle, tmp_path / "zips", 41, 4999)
    assert min(headers, padding) > 20


def test_readers_of_the_formats_themselves_refuse_or_read(bundle: Path, graph: bytes) -> None:
    without_hash(bundle, graph, 101)


@pytest.mark.parametrize("name", [*KINDS, "manifest.json", "manifest.sha256", "signature"])
def test_a_cut_longer_or_missing_file_is_refused(bundle: Path, name: str, keys: tuple[bytes, bytes]) -> None:
    path = bundle / name
    whole = path.read_bytes()
    for data in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"\0", None):
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        with pytest.raises(BundleError) as caught:
            read_bundle(bundle, public_key=keys[1])
        assert ("signature" if name == "manifest.json" and data is not None else name) in caught.value.subject


def test_a_cut_zip_is_refused(bundle: Path, tmp_path: Path) -> None:
    weights, method = pack(bundle, tmp_path / "zips")
    whole = method.read_bytes()
    for size in {*range(0, len(whole), 4099), len(whole) - 1, len(whole) - 21, len(whole) - 22}:
        method.write_bytes(whole[:size])
        with pytest.raises(BundleError):
            read_bundle([weights, method])


@pytest.mark.slow
def test_every_header_byte_of_every_kind_of_file_flipped(
    bundle: Path, graph: bytes, keys: tuple[bytes, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(name, refuse_flips_of_a_listed_file(bundle, name, 1)) for name in KINDS]
    for name in ("manifest.json", "manifest.sha256", "signature"):
        rows.append((name, refuse_flips_of_an_unlisted_file(bundle, name, keys[1], 1)))
    tried, refused = flip_without_sum(bundle, 1)
    rows.append((f"manifest.json with a sum that fits ({tried} tried)", refused))
    headers, padding = refuse_flips_of_a_zip(bundle, tmp_path / "zips", 1, 50)
    rows += [("zips: headers, directory, end", headers), ("zips: padding, every fiftieth byte", padding)]
    tried, refused = without_hash(bundle, graph, 1)
    rows.append((f"tensor headers and programs without their hash ({tried} tried)", refused))
    with capsys.disabled():
        print("\nflipped bytes refused")
        for name, number in rows:
            print(f"| {name} | {number} |")
