# SPDX-License-Identifier: Apache-2.0
"""For the conftest of a folder: its tests read each program of a bundle once, not again with every model that they open."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

__all__ = ["programs_read_once"]


@pytest.fixture(scope="package", autouse=True)  # undone for the tests of other folders, some of which measure memory
def programs_read_once() -> Iterator[None]:
    """Reading them takes most of the time of a few steps, and is not what is tested there."""
    from bespoke.core import torch_engine
    from bespoke.reference import graph_function

    read = functools.lru_cache(maxsize=None)(graph_function.load_program)
    with pytest.MonkeyPatch.context() as patch:
        for module in (graph_function, torch_engine):
            patch.setattr(module, "load_program", read)
        yield
