# SPDX-License-Identifier: Apache-2.0
"""What the Swift harness runs on a Mac (bindings/swift/Tests/Harness): bundles for each engine, a state, and torch's losses.

    python -m tests.apple.swift_vectors FOLDER

writes them on any machine that has the extras `mlx` and `coreml`. Nobody has run the harness on a Mac yet.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.apple.mlx.vectors import TARGETS, write_vectors

ALL_TARGETS = {"cpu": {"executorch": {}, "coreml": {}, **TARGETS["cpu"]}, "gpu": TARGETS["gpu"]}

if __name__ == "__main__":
    write_vectors(Path(sys.argv[1]), ALL_TARGETS)
