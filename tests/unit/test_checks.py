# SPDX-License-Identifier: Apache-2.0
"""The page of full counts is written by the checks themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support import checks


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checks, "recorded", [])
    monkeypatch.setenv("BESPOKE_FULL", "1")
    text = checks.PAGE.read_text(encoding="utf-8")
    empty = text.split(checks.BEGIN)[0] + f"{checks.BEGIN}\n{checks.HEADER}{checks.END}\nAfter.\n"
    (tmp_path / "checks.md").write_text(empty, encoding="utf-8")
    return tmp_path / "checks.md"


def rows(page: Path) -> list[list[str]]:
    lines = page.read_text(encoding="utf-8").split(checks.BEGIN)[1].split(checks.END)[0].splitlines()[3:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_a_full_run_leaves_one_sorted_row_for_each_check(page: Path) -> None:
    checks.record_check("plans", {"executed": 1_000_000, "worst": 0.25}, 7, page)
    checks.record_check("kills", {"kills": 200}, None, page)
    checks.record_check("plans", {"executed": 2_000_000, "worst": 0.5}, 8, page)
    assert [row[:3] for row in rows(page)] == [
        ["kills", "200 kills", "-"],
        ["plans", "2,000,000 executed, 0.5 worst", "8"],
    ]
    assert page.read_text(encoding="utf-8").endswith(f"{checks.END}\nAfter.\n")
    assert checks.count(500) == 500


def test_a_row_says_commit_date_and_machine(page: Path) -> None:
    checks.record_check("plans", {"executed": 1}, 7, page)
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    ).stdout.strip()
    commit, date, machine = rows(page)[0][3:]
    assert commit.rstrip("+") == head
    assert len(date.split("-")) == 3
    assert "cores" in machine


def test_a_fast_run_counts_a_hundredth_and_leaves_the_page_alone(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = page.read_bytes()
    monkeypatch.delenv("BESPOKE_FULL")
    checks.record_check("plans", {"executed": 10_000}, 7, page)
    assert page.read_bytes() == before
    assert checks.recorded == ["plans: 10,000 executed; seed 7"]
    assert (checks.count(1_000_000), checks.count(5)) == (10_000, 1)


def test_processes_that_write_at_once_lose_no_row(page: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.support.checks import record_check\n"
        "for n in range(5): record_check(f'{sys.argv[1]}{n}', {'done': n}, n, Path(sys.argv[2]))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name, str(page)], cwd=REPOSITORY) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert [row[0] for row in rows(page)] == [f"{name}{n}" for name in "abc" for n in range(5)]


def test_a_seed_can_be_given_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BESPOKE_SEED", "41")
    assert checks.new_seed() == 41
    assert "BESPOKE_SEED=41" in capsys.readouterr().out
