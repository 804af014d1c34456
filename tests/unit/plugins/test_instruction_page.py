# SPDX-License-Identifier: Apache-2.0
"""The instruction set's page says what the models say: each instruction, field, role, lifetime, place, section and version."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from bespoke.plan.instructions import PLAN_VERSION, DType, Lifetime, Plan, Role, SectionName
from bespoke.plan.kinds import SCALARS
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reference" / "instruction_set.md").read_text(encoding="utf-8")
DEFS: dict[str, Any] = Plan.model_json_schema()["$defs"]
OPS = {schema["properties"]["op"]["const"]: schema for schema in DEFS.values() if "op" in schema.get("properties", {})}


def section(heading: str) -> str:
    """The text under a heading of any level, to the next heading of the same or a higher one."""
    match = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,6}} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, heading
    return match.group(2)


def tables(text: str) -> dict[str, list[str]]:
    """Head of the first column -> its cells, without quotes; columns of that name are joined."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        found[head[0]] = [row[0].strip("`") for row in rows]
    return found


def test_every_instruction_has_its_section_and_no_other() -> None:
    headings = re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(OPS)


@pytest.mark.parametrize("op", sorted(OPS))
def test_fields_of_an_instruction(op: str) -> None:
    assert sorted(tables(section(op))["field"]) == sorted(OPS[op]["properties"])
    assert f'`"{op}"`' in section(op)


def test_fields_of_the_file_and_of_values() -> None:
    assert sorted(tables(section("The file"))["field"]) == sorted(Plan.model_fields)
    assert sorted(tables(section("Values"))["field"]) == sorted(DEFS["ValueRecord"]["properties"])
    assert sorted(tables(section("Estimate"))["field"]) == sorted(DEFS["Estimate"]["properties"])


@pytest.mark.parametrize(("column", "kind"), [("role", Role), ("lifetime", Lifetime)])
def test_roles_and_lifetimes(column: str, kind: Any) -> None:
    assert sorted(tables(section("Values"))[column]) == sorted(get_args(kind))


def test_places_sections_ways_and_element_types() -> None:
    places = {name: schema for name, schema in DEFS.items() if "kind" in schema.get("properties", {})}
    assert sorted(tables(section("Values"))["place"]) == sorted(
        s["properties"]["kind"]["const"] for s in places.values()
    )
    for schema in places.values():
        (own,) = set(schema["properties"]) - {"kind"}
        assert f"| `{schema['properties']['kind']['const']}` | `{own}` |" in PAGE
    assert sorted(tables(section("Sections"))["section"]) == sorted(get_args(SectionName))
    assert sorted(tables(section("call"))["how"]) == sorted(DEFS["Result"]["properties"]["how"]["enum"])
    for dtype in get_args(DType):
        assert f"`{dtype}`" in section("Values")


def test_scalars_and_version() -> None:
    named = re.search(r"^Scalars are (.*?\))\.$", section("Values"), re.MULTILINE | re.DOTALL)
    assert named
    assert set(re.findall(r"`(\w+)`", named.group(1))) == set(SCALARS)
    assert "`position` (int64" in named.group(1)
    assert {name for name, dtype in SCALARS.items() if dtype == "int64"} == {"position", "direction"}
    assert f"This is version **{PLAN_VERSION[0]}.{PLAN_VERSION[1]}**" in PAGE
