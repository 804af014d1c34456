# SPDX-License-Identifier: Apache-2.0
"""Opening a bundle with weights of 300 MB: with nothing remembered, and with the hashes of an earlier opening."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import pytest
from tests.benchmarks.figures import write_table
from tests.native.conftest import native_build
from tests.native.format_lab import CoreReader
from tests.unit.bundle.example import write_example

from bespoke.bundle.reader import read_bundle
from bespoke.bundle.writer import BundleWriter
from bespoke.format.tensors import write_arrays

__all__ = ["native_build"]

WEIGHT_BYTES = 300_000_000
WEIGHTS = "weights/block_00.safetensors"
REPEATS = 5
SETTLED_SECONDS = 2.5  # a file that changed less than two seconds ago is not remembered


def large(folder: Path) -> Path:
    bundle = write_example(folder)
    with read_bundle(bundle) as opened:
        manifest, files = opened.manifest, {name: opened.read(name) for name in opened.names}
    with BundleWriter(bundle) as writer:
        for name, data in files.items():
            if name != WEIGHTS:
                writer.add_bytes(name, data)
        noise = np.random.Generator(np.random.Philox(1)).integers(0, 256, WEIGHT_BYTES, np.uint8)
        write_arrays(writer.path_for(WEIGHTS), {"weights": noise})
        return writer.finish(manifest)


@pytest.mark.benchmark
def test_opening_with_and_without_remembered_hashes(native_build: Path, tmp_path: Path) -> None:
    bundle, hashes = large(tmp_path / "large.bundle"), tmp_path / "hashes"
    time.sleep(SETTLED_SECONDS)
    seconds: dict[str, list[float]] = {"nothing remembered": [], "hashes remembered": []}
    for _ in range(REPEATS):
        for name, taken in seconds.items():
            if name == "nothing remembered":
                hashes.unlink(missing_ok=True)
            with CoreReader(native_build / "tests" / "format_lab") as lab:
                taken.append(lab.ask("open_files", path=str(bundle), hashes=str(hashes))["seconds"])
    middle = {name: statistics.median(taken) for name, taken in seconds.items()}
    rows = [[name, middle_seconds * 1000, max(seconds[name]) * 1000] for name, middle_seconds in middle.items()]
    note = (
        f"{WEIGHT_BYTES / 1e6:.0f} MB of weights, in the system's file cache: every file of the bundle checked and mapped, a "
        f"process each. Median and worst of {REPEATS}."
    )
    write_table("opening", ("opening with", "ms", "worst, ms"), rows, note)
    assert middle["hashes remembered"] < middle["nothing remembered"] / 5
