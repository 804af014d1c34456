# SPDX-License-Identifier: Apache-2.0
"""docs/reference/settings.md has a row for every field that a developer can set, with the default that the code has."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from bespoke import Budget, Lora, Training
from bespoke.config import Settings
from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "settings.md"
CLASSES = (Training, Budget, Lora)


class Row(NamedTuple):
    field: str
    unit: str
    default: str
    where: str
    when: str


def rows(page: str, heading: str) -> list[Row]:
    """The table under a heading, without its head."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[2:]]


def wrong(page: str, kind: type[Settings]) -> list[str]:
    """What the page lacks or has wrong of one class."""
    found = {row.field.strip("`"): row for row in rows(page, kind.__name__)}
    problems = [f"{name} is on the page, not in the code" for name in found if name not in kind.model_fields]
    for name, field in kind.model_fields.items():
        if name not in found:
            problems.append(f"{kind.__name__}.{name} has no row")
        elif not (default := re.match(r"`(.+?)`", found[name].default)) or default[1] != repr(field.default):
            problems.append(f"{kind.__name__}.{name}: the page says {found[name].default}, the code {field.default!r}")
        elif not all(found[name]):
            problems.append(f"{kind.__name__}.{name} has an empty cell")
    return problems


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_setting_has_its_row_and_its_default(kind: type[Settings]) -> None:
    assert wrong(PAGE.read_text(encoding="utf-8"), kind) == []


def test_a_missing_row_and_another_default_are_found() -> None:
    page = PAGE.read_text(encoding="utf-8")
    without = re.sub(r"^\| `warmup_steps`.*\n", "", page, flags=re.MULTILINE)
    assert wrong(without, Training) == ["Training.warmup_steps has no row"]
    assert wrong(page.replace("| `16.0` |", "| `32.0` |"), Lora) == ["Lora.alpha: the page says `32.0`, the code 16.0"]


def test_fields_of_the_plans_are_marked_as_fixed_by_the_build() -> None:
    """Those that a run may change are the options of `bespoke train`."""
    from bespoke.cli.settings import FLAGS

    compiled = {flag.field for flag in FLAGS if flag.table == "training" and flag.compiled}
    page = PAGE.read_text(encoding="utf-8")
    assert {row.field.strip("`") for row in rows(page, "Training") if row.where == "build"} == compiled
