# SPDX-License-Identifier: Apache-2.0
"""A bundle that is replaced while somebody reads it: the reader goes on with all of the old files, the next one gets the new."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bespoke.bundle.archive import pack
from bespoke.bundle.reader import read_bundle
from bespoke.bundle.signature import generate_key
from bespoke.errors import BundleError
from tests.unit.bundle.example import write_example
from tests.unit.bundle.replaced import READER, WEIGHTS, rebuilt


def neighbours(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir() if path != folder)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_example(tmp_path / "here" / "a.bundle")


def test_a_reader_goes_on_with_the_old_files_while_builds_replace_them(bundle: Path) -> None:
    with read_bundle(bundle) as opened:
        before = [hashlib.sha256(array.tobytes()).hexdigest() for array in opened.mapped(WEIGHTS).values()]
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, bundle, WEIGHTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    assert reader.stdout.readline() == "open\n"
    for _ in range(3):
        rebuilt(bundle)
    reader.stdin.write("\n")
    reader.stdin.flush()
    assert [reader.stdout.readline().strip() for _ in before] == before
    assert reader.stdout.readline() == "read\n"
    with read_bundle(bundle) as opened:
        opened.verify_files()
        after = [hashlib.sha256(array.tobytes()).hexdigest() for array in opened.mapped(WEIGHTS).values()]
    assert after != before
    assert len(neighbours(bundle)) == 1  # what is still read
    reader.communicate("\n")
    assert reader.returncode == 0
    rebuilt(bundle)
    assert neighbours(bundle) == []  # nobody reads it any more


def test_the_name_always_leads_to_a_whole_signed_bundle(bundle: Path) -> None:
    """However often it is replaced meanwhile."""
    private, public = generate_key()
    rebuilt(bundle, private)
    builder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from tests.unit.bundle.replaced import rebuilt\n"
            "for _ in range(40): rebuilt(Path(sys.argv[1]), sys.argv[2].encode())",
            bundle,
            private.decode(),
        ],
        cwd=Path(__file__).resolve().parents[3],
    )
    reads = 0
    while builder.poll() is None or reads == 0:
        with read_bundle(bundle, public_key=public) as opened:
            opened.verify_files()
        reads += 1
    assert builder.returncode == 0
    assert reads > 5


def test_zips_are_replaced_by_renaming_too(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "zips")
    with read_bundle(tmp_path / "zips") as opened:
        rebuilt(bundle)
        pack(bundle, tmp_path / "zips")
        opened.verify_files()
        assert {name: hashlib.sha256(opened.read(name)).hexdigest() for name in opened.names} == {
            name: record.sha256 for name, record in opened.manifest.files.items()
        }
    with read_bundle(tmp_path / "zips") as again:
        assert again.verify_files() == len(again.names)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [cut, removed])
def test_a_file_changed_in_place_before_it_is_read_is_refused(bundle: Path, change: Callable[[Path], None]) -> None:
    with read_bundle(bundle) as opened:
        change(bundle / WEIGHTS)
        with pytest.raises(BundleError, match=WEIGHTS):
            opened.mapped(WEIGHTS)
