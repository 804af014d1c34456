# SPDX-License-Identifier: Apache-2.0
"""What was learned from a person's words is readable by that person alone, in every format and whatever the umask, also while it is
written. A bundle and its base model are not: they are for whom the umask lets in.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest

from bespoke import PersonalModel
from bespoke.errors import AdapterError
from bespoke.format.whole_folder import WholeFolder
from bespoke.rules.records import AdapterFormat

UMASKS = [0, 0o002, 0o022]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def seen_meanwhile(place: Path) -> Iterator[set[tuple[str, int]]]:
    """(path, mode) of whatever stands below the folder at any moment of the block."""
    found: set[tuple[str, int]] = set()
    ended = threading.Event()

    def look() -> None:
        while True:
            last = ended.is_set()
            for folder, folders, files in os.walk(place):
                for name in (*folders, *files):
                    try:
                        mode = os.lstat(os.path.join(folder, name)).st_mode
                    except FileNotFoundError:
                        continue
                    found.add((os.path.join(folder, name), stat.S_IMODE(mode)))
            if last:
                return

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()


def check(place: Path, write: Callable[[Path], object], mask: int) -> None:
    place.mkdir(mode=0o755)
    (place / "out").mkdir(mode=0o777)  # an empty folder is replaced, and so is its mode
    (place / "out").chmod(0o777)
    with umask(mask), seen_meanwhile(place) as found:
        write(place / "out")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (place / "out").iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE((place / "out").stat().st_mode) == 0o700
    partial = {(path, mode) for path, mode in found if ".partial" in path}
    # 0777 is the old folder, which has changed places with the new one and is about to go.
    assert {path for path, mode in partial if mode & 0o077 and mode != 0o777} == set()


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
@pytest.mark.parametrize("format", get_args(AdapterFormat))
def test_an_exported_adapter_is_its_owners_alone(
    tiny_bundle: Path, tmp_path: Path, format: AdapterFormat, mask: int
) -> None:
    with PersonalModel.open(tiny_bundle, tmp_path / "state") as model:
        check(tmp_path / "place", lambda out: model.export_adapter(out, format, base=True), mask)


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_a_merged_model_is_its_owners_alone(tiny_folder: Path, tmp_path: Path, mask: int) -> None:
    original = tiny_folder / "model"
    with PersonalModel.open(tiny_folder / "bundle", tmp_path / "state") as model:
        check(tmp_path / "place", lambda out: model.export_merged(out, original, base=True), mask)


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_what_is_no_persons_is_for_whom_the_umask_lets_in(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        whole = WholeFolder(tmp_path / "shared", AdapterError, lambda folder: None, personal=False)
        whole.new_file("file").write_text("x")
        whole.finish()
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "shared" / "file").stat().st_mode) == 0o666 & ~mask
