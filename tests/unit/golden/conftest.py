# SPDX-License-Identifier: Apache-2.0
"""One bundle for all tests that only read it or change copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bundles import made_once
from tests.unit.golden.bundles import build


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exact method by SGD and a zeroth-order one with two queries."""
    optimizers = {"mebp": {"update": "sgd", "learning_rate": 0.01}, "mezo": {"queries": 2, "learning_rate": 1e-4}}

    def make(folder: Path) -> None:
        build(folder, "llama", optimizers, text=True, schedule="cosine", warmup_steps=2)

    return made_once(tmp_path_factory, "golden", make) / "bundle"
