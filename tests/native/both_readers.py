# SPDX-License-Identifier: Apache-2.0
"""The core's reader, and documents that it and Python's reader take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.native.format_lab import BUILDS, CoreReader, build_of
from tests.unit.plan.broken import Sample


@pytest.fixture(scope="module", params=BUILDS)
def reader(request: pytest.FixtureRequest) -> Iterator[CoreReader]:
    with CoreReader(build_of(request) / "tests" / "format_lab") as lab:
        yield lab


@pytest.fixture(scope="module")
def sample() -> Sample:
    return Sample()
