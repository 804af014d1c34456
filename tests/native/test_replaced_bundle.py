# SPDX-License-Identifier: Apache-2.0
"""A bundle that is replaced while the core trains with it: the run goes on with the old files to its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from bespoke import PersonalModel
from bespoke.bundle.reader import read_bundle
from bespoke.bundle.writer import BundleWriter
from tests.native.core_lab import STEPS, tiny_core_bundle
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]


def replaced(bundle: Path) -> None:
    with read_bundle(bundle) as old:
        files, manifest = {name: old.read(name) for name in old.names}, old.manifest
    with BundleWriter(bundle) as writer:
        for name, data in files.items():
            writer.add_bytes(name, data)
        writer.finish(manifest)


def opened_files(pid: int) -> set[str]:
    found = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return found


def held_with_the_bundle_open(program: Path, request: dict[str, Any]) -> subprocess.Popen[str]:
    """A core stopped while it has the folder open and no program of it loaded: started again until it stops at that moment."""
    for _ in range(50):
        core = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert core.stdin is not None
        core.stdin.write(json.dumps(request))
        core.stdin.close()
        maps = Path(f"/proc/{core.pid}/maps")
        while core.poll() is None and request["bundle"] not in opened_files(core.pid):
            pass
        core.send_signal(signal.SIGSTOP)
        if core.poll() is None and ".pte" not in maps.read_text():
            return core
        core.kill()
        core.wait()
    raise AssertionError("the core opened its programs at once, 50 times")


def test_a_run_goes_on_with_the_bundle_that_it_opened(
    native_build: Path, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    bundle = shutil.copytree(tiny_core_bundle, tmp_path / "here" / "a.bundle")
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        add_numbers(model)
    request = {"verb": "train", "bundle": str(bundle), "state": str(tmp_path / "state"), "threads": 1}
    core = held_with_the_bundle_open(native_build / "bespoke-core", request)
    replaced(bundle)  # no program was opened yet
    core.send_signal(signal.SIGCONT)
    assert core.stdout is not None
    last = json.loads(core.stdout.read().splitlines()[-1])
    core.stdout.close()
    assert core.wait() == 0, last
    assert last["report"]["total_steps"] == STEPS
    replaced(bundle)
    assert [path.name for path in bundle.parent.iterdir()] == ["a.bundle"]  # nobody reads the old ones any more
