# SPDX-License-Identifier: Apache-2.0
"""Converted models, and one tracer, for the whole session: tracing is most of the time, and so one process runs them all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bespoke.graph.trace import Tracer
from tests.gradients.harness import Base, Bases
from tests.support.models import tiny_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "bases" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("gradients"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tracer() -> Tracer:
    return Tracer()


@pytest.fixture(scope="session")
def shakespeare(data_folder: Path, stories: Path) -> list[int]:
    """Tokens of stories260K's tokenizer, read without the SDK."""
    from tokenizers import Tokenizer

    text = (data_folder / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")[:100_000]
    return Tokenizer.from_file(str(stories / "tokenizer.json")).encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Bases:
    """Name of a family of tests.support.models, or `stories260K`, to its converted form."""
    made: dict[str, Base] = {}

    def base(name: str) -> Base:
        if name not in made:
            folder: Path = (
                request.getfixturevalue("stories")
                if name == "stories260K"
                else tiny_model(name, tmp_path_factory.mktemp(f"{name}_model"))
            )
            made[name] = Base.convert(name, folder, tmp_path_factory.mktemp(f"{name}_weights"))
        return made[name]

    return base
