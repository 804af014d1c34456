# SPDX-License-Identifier: Apache-2.0
"""A model with examples, and places for states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from bespoke import PersonalModel
from tests.support.read_once import programs_read_once  # noqa: F401
from tests.unit.personal_model.tiny import add_numbers, tiny_bundle, tiny_folder  # noqa: F401

torch.set_num_threads(1)

Open = Callable[..., PersonalModel]


@pytest.fixture
def opened(tiny_bundle: Path, tmp_path: Path) -> Iterator[Open]:  # noqa: F811
    """`opened("alice", count=12)`: a state with so many examples; the same name opens the same state again."""
    with ExitStack() as stack:

        def open_state(
            name: str = "alice", count: int = 12, bundle: Path | None = None, **options: float
        ) -> PersonalModel:
            model = PersonalModel.open(bundle or tiny_bundle, tmp_path / name, **options)  # type: ignore[arg-type]
            stack.callback(model.close)
            add_numbers(model, count)
            return model

        yield open_state


@pytest.fixture
def alice(opened: Open) -> PersonalModel:
    return opened()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "personal_model" in item.nodeid:  # one process builds the bundle and keeps it
            item.add_marker(pytest.mark.xdist_group("tiny"))
