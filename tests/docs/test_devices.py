# SPDX-License-Identifier: Apache-2.0
"""docs/reference/devices.md has what the reports in its folder say, and a report that cannot be read is refused by name."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bespoke.errors import DataError
from tests.conftest import REPOSITORY
from tests.support.json_schema import violations


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(REPOSITORY / "tools")
    return importlib.import_module("devices_page")


def fields_of_the_first(tool: ModuleType) -> dict[str, Any]:
    path = min(tool.FOLDER.glob("*.json"))
    fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return fields


def test_the_page_has_what_the_reports_say(tool: ModuleType) -> None:
    """`python tools/devices_page.py` writes it; run it after a change."""
    page = tool.PAGE.read_text(encoding="utf-8")
    assert tool.with_tables(page, tool.tables(tool.entries())) == page


def test_reports_are_what_the_schema_says(tool: ModuleType) -> None:
    schema = json.loads((REPOSITORY / "bindings" / "schema" / "bench_report.schema.json").read_text(encoding="utf-8"))
    paths = sorted(tool.FOLDER.glob("*.json"))
    assert paths
    for path in paths:
        fields = json.loads(path.read_text(encoding="utf-8"))
        assert violations({name: value for name, value in fields.items() if name not in tool.ADDED}, schema) == [], path


def test_another_figure_gives_another_page(tool: ModuleType, tmp_path: Path) -> None:
    fields = fields_of_the_first(tool)
    fields["products"][0]["rate"]["median"] = 1234.5
    (tmp_path / "x.json").write_text(json.dumps(fields))
    tables = tool.tables([tool.read_entry(tmp_path / "x.json")])
    assert "1234 (" in tables["device_rates"]
    assert "1234" not in tables["devices"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"measured_by": ""}, "measured_by"),
        ({"device": None}, "device"),
        ({"quick": True}, "--quick"),
        ({"products": [{"cores": "all"}]}, "products.0"),
        ({"memory_bytes": "much"}, "memory_bytes"),
    ],
)
def test_a_report_that_lacks_something_is_refused_by_name(
    tool: ModuleType, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    (tmp_path / "phone.json").write_text(json.dumps({**fields_of_the_first(tool), **change}))
    with pytest.raises(DataError, match=r"devices/phone\.json") as refused:
        tool.read_entry(tmp_path / "phone.json")
    assert said in str(refused.value)


def test_a_file_that_is_no_json_is_refused_by_name(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "phone.json").write_text("{half")
    with pytest.raises(DataError, match="no JSON"):
        tool.read_entry(tmp_path / "phone.json")
