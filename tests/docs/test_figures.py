# SPDX-License-Identifier: Apache-2.0
"""README.md is short, its table is the one that the recorded figures give, and shares compare like with like."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.benchmarks.figures import pages
from tests.benchmarks.overview import PAGE, overview, table, text_of
from tests.benchmarks.speed_cases import multiplies_in, share
from tests.benchmarks.step_turns import MATMUL, PEFT, PEFT_BF16, WITHOUT_AMX
from tests.conftest import REPOSITORY

README = REPOSITORY / "README.md"
AMX, NO_AMX = {"avx2", "avx512_bf16", "amx_bf16"}, {"avx2", "avx512_bf16"}
CORE = "core, built for 45 MB"


def test_the_readme_is_short_and_says_early_what_was_not_verified() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    said = lines.index("## Not verified")
    end = next(number for number in range(said + 1, len(lines)) if lines[number].startswith("## "))
    assert end <= 60


def test_the_readme_has_one_table_and_it_follows_from_the_recorded_figures() -> None:
    readme = README.read_text(encoding="utf-8")
    assert text_of(readme, "overview") == overview(PAGE.read_text(encoding="utf-8")) + "\n"
    assert len(table(readme, "overview")) == 5
    rows = [line.startswith("|") for line in readme.splitlines()]
    assert sum(now and not before for before, now in pairwise([False, *rows])) == 1


def test_another_figure_gives_another_overview() -> None:
    page = PAGE.read_text(encoding="utf-8")
    peak = table(page, "core_memory")[0]["peak, MB"]
    assert f"| {peak} MB |" in overview(page)
    assert "| 1234.5 MB |" in overview(page.replace(f"| {peak} |", "| 1234.5 |", 1))


def test_tables_hold_no_share_above_the_whole() -> None:
    seen = 0
    for page in pages():
        for name in re.findall(r"^<!-- figures:(\w+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE):
            if "|" not in text_of(page.read_text(encoding="utf-8"), name):
                continue
            for row in table(page.read_text(encoding="utf-8"), name):
                shares = [cell for heading, cell in row.items() if "share" in heading and cell != "-"]
                assert all(float(cell.rstrip("%")) <= 100 for cell in shares), f"{page.name}, {name}: {shares}"
                seen += len(shares)
    assert seen


@pytest.mark.parametrize(
    ("run", "processor", "dtype"),
    [
        (CORE, AMX, "bfloat16"),
        (CORE + WITHOUT_AMX, AMX, "float32"),
        (CORE, NO_AMX, "float32"),
        (PEFT, AMX, "float32"),
        (PEFT_BF16, NO_AMX, "bfloat16"),
    ],
)
def test_a_run_is_compared_with_the_matmul_rate_of_its_own_format(run: str, processor: set[str], dtype: str) -> None:
    assert multiplies_in(run, processor) == dtype
    assert dtype in MATMUL


def test_a_share_above_the_whole_is_left_out() -> None:
    assert share(50.0, 200.0) == "25%"
    assert share(200.0, 200.0) == "100%"
    assert share(201.0, 200.0) is None
