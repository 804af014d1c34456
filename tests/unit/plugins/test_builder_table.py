# SPDX-License-Identifier: Apache-2.0
"""The how-to's table of the builder is what `StepBuilder` says: `make schema` writes it."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

from bespoke.graph.step_builder import StepBuilder
from tests.conftest import REPOSITORY


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(REPOSITORY / "tools")
    return importlib.import_module("builder_table")


def test_the_page_has_the_table_of_the_protocol(tool: ModuleType) -> None:
    page = tool.PAGE.read_text(encoding="utf-8")
    assert tool.with_table(page) == page


def test_each_call_of_the_builder_has_a_row(tool: ModuleType) -> None:
    table = tool.table()
    public = [name for name in vars(StepBuilder) if not name.startswith("_")]
    assert [name for name in public if f"| `b.{name}" not in table] == []
    assert all(inspect.getdoc(vars(StepBuilder)[name]) for name in public)
