# SPDX-License-Identifier: Apache-2.0
"""Bundles that take text, of two base models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bundles import made_once
from tests.unit.golden.bundles import build


@pytest.fixture(scope="session")
def text_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Bundles of two base models with the same tokenizer. No engine runs them here."""

    def make(folder: Path) -> None:
        for family in ("llama", "qwen2"):
            (folder / family).mkdir()
            build(folder / family, family, "mezo", text=True)

    folder = made_once(tmp_path_factory, "text_bundles", make)
    return {family: folder / family / "bundle" for family in ("llama", "qwen2")}
