# SPDX-License-Identifier: Apache-2.0
"""Qwen2.5-0.5B in its published configuration, with random weights, and bundles of it; kept under `.cache/benchmarks`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.footprint import Watched, watch
from tests.conftest import REPOSITORY
from tests.support.full_size import full_size_folder

NAME = "Qwen2.5-0.5B"
CACHE = REPOSITORY / ".cache" / "benchmarks"


def model_folder() -> Path:
    return full_size_folder(NAME, CACHE / NAME)


def build(
    model: Path, bundle: Path, methods: Sequence[str], length: int, batch_size: int = 1, memory_mb: float | None = None
) -> Watched:
    """Builds in a child process, also if the bundle exists."""
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.parent.mkdir(parents=True, exist_ok=True)
    settings = {
        "model": str(model),
        "bundle": str(bundle),
        "optimizers": {method: {} for method in methods},
        "training": {"sequence_lengths": [length], "batch_size": batch_size},
        "memory_mb": memory_mb,
    }
    return watch("tests.benchmarks.build_step", settings)


def train(
    bundle: Path, state: Path, length: int, steps: int, method: str | None = None, batch_size: int = 1
) -> Watched:
    """Trains in a child process, from a fresh state."""
    shutil.rmtree(state, ignore_errors=True)
    settings = {
        "bundle": str(bundle),
        "state": str(state),
        "sequence_length": length,
        "batch_size": batch_size,
        "steps": steps,
        "method": method,
    }
    return watch("tests.benchmarks.our_step", settings)
