# SPDX-License-Identifier: Apache-2.0
"""The core's reader, and a small signed bundle to be damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke.bundle.signature import generate_key, sign_bundle
from tests.native.format_lab import BUILDS, CoreReader, build_of
from tests.unit.bundle.example import write_example


@pytest.fixture(scope="module", params=BUILDS)
def reader(request: pytest.FixtureRequest) -> Iterator[CoreReader]:
    with CoreReader(build_of(request) / "tests" / "format_lab") as lab:
        yield lab


@pytest.fixture(scope="module")
def keys() -> tuple[bytes, bytes]:
    return generate_key()


@pytest.fixture
def bundle(tmp_path: Path, keys: tuple[bytes, bytes]) -> Path:
    """A sound, signed bundle in a folder that holds nothing else."""
    folder = write_example(tmp_path / "here" / "a.bundle", graph=b'{"not": "traced"}')
    sign_bundle(folder, keys[0])
    return folder
