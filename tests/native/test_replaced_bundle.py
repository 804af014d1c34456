# SPDX-License-Identifier: Apache-2.0
"""A bundle that is replaced while the core trains with it: the run goes on with the old files to its end."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from bespoke import PersonalModel
from bespoke.bundle.reader import open_bundle
from bespoke.bundle.writer import BundleWriter
from tests.native.core_lab import STEPS, tiny_core_bundle
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]


def replaced(bundle: Path) -> None:
    with open_bundle(bundle) as old:
        files, manifest = {name: old.read(name) for name in old.names}, old.manifest
    with BundleWriter(bundle) as writer:
        for name, data in files.items():
            writer.add_bytes(name, data)
        writer.finish(manifest)


def test_a_run_goes_on_with_the_bundle_that_it_opened(native_build: Path, tiny_core_bundle: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(tiny_core_bundle, tmp_path / "here" / "a.bundle")
    with PersonalModel.open(bundle, tmp_path / "state", runtime="torch") as model:
        add_numbers(model)
    core = subprocess.Popen([native_build / "bespoke-core"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert core.stdin is not None
    assert core.stdout is not None
    core.stdin.write(json.dumps({"verb": "train", "bundle": str(bundle), "state": str(tmp_path / "state"), "threads": 1}))
    core.stdin.close()
    assert json.loads(core.stdout.readline())["event"] == "step"
    replaced(bundle)  # what the gate calls after the last step was not opened yet
    last = json.loads(core.stdout.read().splitlines()[-1])
    core.stdout.close()
    assert core.wait() == 0, last
    assert last["report"]["total_steps"] == STEPS
    replaced(bundle)
    assert [path.name for path in bundle.parent.iterdir()] == ["a.bundle"]  # nobody reads the old ones any more
