# SPDX-License-Identifier: Apache-2.0
"""Paths and fixtures: a bundle that is made once, and a server of it without a network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where the example of a bundle lies, in the SDK's tests

from federation_client import Client, ManualClock, Served
from guided_rounds import COLUMNS
from small_bundle import write_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "words.bundle")


@pytest.fixture(scope="session")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose devices probe columns of guidance."""
    return write_bundle(tmp_path_factory.mktemp("probed") / "words.bundle", probed_columns=COLUMNS, clip=100.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def serve(bundle: Path, tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Served]]:
    """A maker of servers. They share a state if they have one after the other."""
    made: list[Served] = []

    def start(*, state: str = "state", served_bundle: Path | None = None, **settings: Any) -> Served:
        made.append(Served(served_bundle or bundle, tmp_path / state, clock, settings))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()


@pytest.fixture
def client(served: Served) -> Client:
    return served.enrolled()
