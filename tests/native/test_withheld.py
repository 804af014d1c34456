# SPDX-License-Identifier: Apache-2.0
"""Files that the system keeps closed for a while, as a phone does until it is unlocked: Unavailable, and afterwards all goes on.

Permissions stand for that here. They do not hold for root, so the core then runs as a user of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.core.finding import find
from tests.native.core_lab import tiny_core_bundle
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]

NOBODY = 65534
STATE_FILES = ("state.sqlite", "slot_*", "trainer.lock", "files.lock")
BUNDLE_FILES = ("manifest.json", "manifest.sha256", "weights/*", "plans/*", "adapter/*")


@pytest.fixture(scope="module")
def place(tiny_core_bundle: Path) -> Iterator[Path]:
    """A folder that the core may use: a bundle, and a state with a run that has made some steps."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copytree(tiny_core_bundle, place / "bundle")
        with PersonalModel.open(place / "bundle", place / "state", engine="executorch") as model:
            add_numbers(model)
            done: list[int] = []
            model.train(method="mesp", on_step=lambda step, _: done.append(step), stop=lambda: len(done) >= 2)
            assert model.current_run() is not None
        if os.geteuid() == 0:
            for path in (place, *place.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        yield place


def ended(place: Path) -> dict[str, Any]:
    """What the program said last: it opens everything, makes no step for want of time, and commits."""
    wanted = {
        "verb": "train",
        "bundle": str(place / "bundle"),
        "state": str(place / "state"),
        "threads": 1,
        "memory_mb": -1,
        "deadline_seconds": 1e-9,
    }
    done = subprocess.run(
        [find().required()],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        cwd="/",
        user=NOBODY if os.geteuid() == 0 else None,
        check=False,
    )
    assert done.stdout, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.parametrize("files", [*(f"state/{name}" for name in STATE_FILES), *(f"bundle/{n}" for n in BUNDLE_FILES)])
def test_a_file_that_is_there_and_may_not_be_read_can_be_tried_later(place: Path, files: str) -> None:
    closed = {path: path.stat().st_mode for path in place.glob(files) if path.is_file()}
    assert closed, sorted(place.rglob("*"))
    try:
        for path in closed:
            path.chmod(0)
        error = ended(place)
    finally:
        for path, mode in closed.items():
            path.chmod(mode)
    assert error["event"] == "error", error
    assert error["kind"] == "Unavailable", error
    assert any(path.name in error["subject"] for path in closed), error
    assert "unlocked" in error["next_step"]
    assert "who may read and write" in error["next_step"]
    assert ended(place)["event"] == "report"


def test_a_place_where_no_state_can_be_made_is_a_wrong_one(place: Path) -> None:
    (place / "others").mkdir()
    (place / "others").chmod(0o555)
    (place / "elsewhere").mkdir()
    shutil.copytree(place / "bundle", place / "elsewhere" / "bundle")
    try:
        os.symlink(place / "others" / "state", place / "elsewhere" / "state")
        error = ended(place / "elsewhere")
    finally:
        shutil.rmtree(place / "others")
    assert error["kind"] == "StateError", error
