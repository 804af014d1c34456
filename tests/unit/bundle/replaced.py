# SPDX-License-Identifier: Apache-2.0
"""A bundle with other weights in the place of one that is read, and a process that reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bespoke.bundle.reader import read_bundle
from bespoke.bundle.writer import BundleWriter
from bespoke.format.tensors import write_arrays

WEIGHTS = "weights/block_00.safetensors"

READER = """
import hashlib, sys
from bespoke.bundle.reader import read_bundle

with read_bundle(sys.argv[1]) as bundle:
    mapped = bundle.mapped(sys.argv[2])
    print("open", flush=True)
    sys.stdin.readline()
    for name in bundle.names:
        assert hashlib.sha256(bundle.read(name)).hexdigest() == bundle.manifest.files[name].sha256
    for array in mapped.values():
        print(hashlib.sha256(array.tobytes()).hexdigest())
    print("read", flush=True)
    sys.stdin.readline()
"""


def rebuilt(folder: Path, key: bytes | None = None) -> None:
    """Another bundle in the place of this one: other weights, everything else the same."""
    with read_bundle(folder) as old:
        files = {name: old.read(name) for name in old.names if name != WEIGHTS}
        arrays = {key: np.flip(value).copy() for key, value in old.mapped(WEIGHTS).items()}
    with BundleWriter(folder) as writer:
        for name, data in files.items():
            writer.add_bytes(name, data)
        write_arrays(writer.path_for(WEIGHTS), arrays)
        writer.finish(old.manifest, key)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
