# SPDX-License-Identifier: Apache-2.0
"""The tour of the code leads where it says: each file imports the next, and the last one holds the line that is quoted."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from tools.check_layers import LAYERS, imports_of, source_files

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "explanation" / "tour.md"
WALKS = (
    "From `train` to the line that starts",
    "From `train` to the line that computes",
    "From `reference.train`",
    "From `build`",
)
FROM_TRAIN = WALKS[:2]
MOST_IMPORTS = 3


def walk(begin: str) -> tuple[list[Path], str]:
    """Files in the order of the page, and the line quoted at the end."""
    section = next(part for part in PAGE.read_text(encoding="utf-8").split("\n## ") if part.startswith(begin))
    files = re.findall(r"^\d+\. \[`(.+?)`\]", section, re.MULTILINE)
    (quoted,) = re.findall(r"```text\n\s*(.+)\n", section)
    return [REPOSITORY / file for file in files], quoted


@pytest.mark.parametrize("begin", WALKS)
def test_each_file_of_a_walk_imports_the_next(begin: str) -> None:
    files, quoted = walk(begin)
    modules = source_files(REPOSITORY)
    names = {path: module for module, path in modules.items()}
    assert 2 <= len(files) <= MOST_IMPORTS + 1
    for one, other in pairwise(files):
        imports = {each.target for each in imports_of(names[one], one, REPOSITORY, modules)}
        assert names[other] in imports, f"{one.name} does not import {names[other]}"
    assert quoted in {line.strip() for line in files[-1].read_text(encoding="utf-8").splitlines()}


@pytest.mark.parametrize("begin", FROM_TRAIN)
def test_the_code_of_a_step_is_at_most_three_imports_from_personal_model(begin: str) -> None:
    files, _ = walk(begin)
    assert files[0] == REPOSITORY / "sdk" / "bespoke" / "personal_model.py"
    assert len(files) - 1 <= MOST_IMPORTS


def test_the_walks_fit_on_one_screen() -> None:
    sections = [part for part in PAGE.read_text(encoding="utf-8").split("\n## ") if part.startswith("From `train`")]
    assert len(sections) == len(FROM_TRAIN)
    assert sum(len(section.splitlines()) for section in sections) <= 50


def test_the_packages_stand_in_the_order_of_the_layers() -> None:
    table = PAGE.read_text(encoding="utf-8").split("## The packages")[1]
    named = [name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert named == [layer for layer in LAYERS if (REPOSITORY / "sdk" / "bespoke" / layer).is_dir()]
