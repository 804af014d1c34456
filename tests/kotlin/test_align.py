# SPDX-License-Identifier: Apache-2.0
"""The aligner of APKs, on archives of its own kind and of others' (bindings/kotlin/tools/align.py)."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest

from tests.kotlin.packed import tool
from tests.kotlin.zip_headers import headers

pytestmark = pytest.mark.kotlin
PAGE = 16_384


def contents(path: Path) -> dict[str, tuple[int, bytes]]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {entry.filename: (entry.compress_type, archive.read(entry)) for entry in archive.infolist()}


@pytest.mark.parametrize("seed", range(10))
def test_what_is_mapped_begins_on_a_page_and_nothing_else_changes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    given, aligned, again = (tmp_path / name for name in ("given.apk", "aligned.apk", "again.apk"))
    names = [
        "resources.arsc",
        "classes.dex",
        "assets/ä.zip",
        "assets/words.txt",
        "lib/x86_64/a.so",
        "lib/arm64-v8a/b.so",
        "a.so",
    ]
    chance.shuffle(names)
    with zipfile.ZipFile(given, "w") as archive:
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            entry.extra = b"\x01\x00" + (4).to_bytes(2, "little") + b"some" if chance.random() < 0.5 else b""
            archive.writestr(entry, chance.randbytes(chance.randrange(40_000)))
    tool("align.py", given, aligned)
    tool("align.py", aligned, again)
    assert contents(given) == contents(aligned)
    assert list(contents(given)) == list(contents(aligned))
    assert aligned.read_bytes() == again.read_bytes()
    for name, (method, begin, _) in headers(aligned).items():
        if method == 0:
            assert begin % 4 == 0
            assert begin % PAGE == 0 or name in ("resources.arsc", "classes.dex", "assets/words.txt", "a.so"), name


def test_entries_whose_sizes_follow_their_data_are_taken_too(tmp_path: Path) -> None:
    class Pipe:
        """A file that cannot go back, so that zipfile writes sizes after the data."""

        def __init__(self, path: Path) -> None:
            self.file = path.open("wb")

        def write(self, data: bytes) -> int:
            return self.file.write(data)

        def flush(self) -> None:
            self.file.flush()

    pipe = Pipe(tmp_path / "given.apk")
    with zipfile.ZipFile(pipe, "w") as archive:  # type: ignore[call-overload]
        archive.writestr("lib/x86_64/liba.so", b"a" * 1000)
    pipe.file.close()
    tool("align.py", tmp_path / "given.apk", tmp_path / "aligned.apk")
    assert headers(tmp_path / "aligned.apk")["lib/x86_64/liba.so"] == (0, PAGE, 1000)
