# SPDX-License-Identifier: Apache-2.0
"""The how-to pages for authors of plugins: their Python runs, and the names that they list are those that there are."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

HOW_TO = REPOSITORY / "docs" / "how_to"
PAGES = ("write_an_optimizer.md", "write_a_target.md")


def files(page: str) -> dict[str, str]:
    """The Python of a page, by the file name in the first line of each block."""
    blocks = re.findall(r"```python\n(.*?)```", (HOW_TO / page).read_text(encoding="utf-8"), re.DOTALL)
    names = [re.match(r"# file: (\w+\.py)\n", block) for block in blocks]
    assert all(names), "every block of Python says which file it is"
    return {name.group(1): block for name, block in zip(names, blocks, strict=True) if name}


def found_tests(found: dict[str, str]) -> int:
    count = sum(text.count("\ndef test_") for text in found.values())
    assert count >= 2
    return count


@pytest.mark.slow  # the suites that it runs are those of test_plugins.py
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = files(page)
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    modules = [name.removesuffix(".py") for name in found]
    try:
        tests = importlib.import_module(next(name for name in modules if name.startswith("test_")))
        ran = [getattr(tests, name)() for name in dir(tests) if name.startswith("test_")]
    finally:
        for module in modules:
            sys.modules.pop(module, None)
    assert len(ran) == found_tests(found)
