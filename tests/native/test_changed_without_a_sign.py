# SPDX-License-Identifier: Apache-2.0
"""Files of a pinned bundle that are changed through a writable mapping after their hashes were remembered.

The system sets a file's times when a page of a mapping is first written to, and not with the writes that follow.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.errors import BundleError
from tests.native.core_lab import tiny_core_bundle
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]
SETTLED_SECONDS = 2.2  # after a change, a hash is not remembered for two seconds


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        yield mapping


def names_of(bundle: Path, kind: str) -> list[str]:
    manifest: dict[str, Any] = json.loads((bundle / "manifest.json").read_text())
    if kind == "weights":
        return sorted(name for name in manifest["files"] if name.startswith("weights/"))
    return sorted(name for name in manifest["files"] if name.endswith(".pte"))


@pytest.mark.parametrize(("kind", "mode"), [("programs", 0o600), ("weights", 0o666), ("programs", 0o666)])
def test_a_change_without_a_sign_is_found(tiny_core_bundle: Path, tmp_path: Path, kind: str, mode: int) -> None:
    bundle = shutil.copytree(tiny_core_bundle, tmp_path / "bundle")
    paths = [bundle / name for name in names_of(bundle, kind)]
    for path in paths:
        path.chmod(mode)
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        pin = model._bundle.manifest_sha256
        add_numbers(model)
    mappings = [mapped(path) for path in paths]
    opened = [one.__enter__() for one in mappings]
    try:
        for mapping in opened:
            mapping[-1] = mapping[-1]  # the page is dirty from here on
        time.sleep(SETTLED_SECONDS)
        with PersonalModel.open(bundle, tmp_path / "state", pin_sha256=pin) as model:
            model.train(run_steps=1)
        before = [os.stat(path) for path in paths]
        for mapping in opened:
            mapping[-1] ^= 1
        after = [os.stat(path) for path in paths]
        if [(one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in before] != [
            (one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in after
        ]:
            pytest.skip("this file system shows each write through a mapping")
        with (
            PersonalModel.open(bundle, tmp_path / "state", pin_sha256=pin) as model,
            pytest.raises(BundleError, match="sha256"),
        ):
            model.train(run_steps=1)
    finally:
        for one in mappings:
            one.__exit__(None, None, None)


def test_weights_that_only_this_user_may_write_are_hashed_once(tiny_core_bundle: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(tiny_core_bundle, tmp_path / "bundle")
    time.sleep(SETTLED_SECONDS)
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        add_numbers(model)
        model.train(run_steps=1)
    inodes = {os.stat(bundle / name).st_ino for name in names_of(bundle, "weights")}
    remembered = {int(line.split()[1]) for line in (tmp_path / "state" / "hashes").read_text().splitlines()[1:]}
    assert inodes <= remembered
    assert not {os.stat(bundle / name).st_ino for name in names_of(bundle, "programs")} & remembered
