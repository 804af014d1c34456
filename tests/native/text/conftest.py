# SPDX-License-Identifier: Apache-2.0
"""The lab, and each tokenizer open in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.lab_process import end
from tests.native.text.lab import TextLab
from tests.support.checks import few_of
from tests.support.tokenizer_families import FAMILIES, FEW, Family, family_of

__all__ = ["family_of"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "family_of" in getattr(item, "fixturenames", ()):  # one process makes the tokenizers
            item.add_marker(pytest.mark.xdist_group("text"))


@pytest.fixture(scope="session")
def program(native_build: Path) -> Path:
    return native_build / "tests" / "text_lab"


@pytest.fixture(scope="session")
def lab(program: Path) -> Iterator[TextLab]:
    one = TextLab(program)
    yield one
    assert end(one.process) == 0


@pytest.fixture(params=few_of(FAMILIES, FEW))
def family(request: pytest.FixtureRequest, family_of: Callable[[str], Family], lab: TextLab) -> Family:
    """Each, open in the lab."""
    one = family_of(request.param)
    found = lab.open(one.path)
    assert (found["bos"], found["eos"]) == tuple(-1 if token is None else token for token in (one.bos, one.eos))
    return one
