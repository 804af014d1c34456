# SPDX-License-Identifier: Apache-2.0
"""No page states a measured figure in prose: a benchmark writes it between markers, or it is not there."""

from __future__ import annotations

import pytest
from tools.prose_figures import Allowed, figures, pages, read_allowed, unused


def found(text: str, *allowed: Allowed) -> list[str]:
    return [figure.text for figure in figures("page.md", text, allowed)]


def test_no_page_holds_a_figure_in_prose() -> None:
    allowed = read_allowed()
    assert [figure for page, text in pages().items() for figure in figures(page, text, allowed)] == []


def test_every_allowed_constant_still_stands_on_its_page() -> None:
    assert unused(read_allowed(), pages()) == []


@pytest.mark.parametrize(
    ("sentence", "figure"),
    [
        ("A step takes 3.74 s on this machine.", "3.74 s"),
        ("A commit takes 12ms.", "12ms"),
        ("Training takes about three minutes.", "three minutes"),
        ("The peak is 42.2 MB.", "42.2 MB"),
        ("It takes 32 KiB\nof scratch.", "32 KiB"),
        ("It reads at 1.2 GB/s.", "1.2 GB/s"),
        ("Matmul runs at 200 GFLOP/s.", "200 GFLOP/s"),
        ("It saves 37% of attention's work.", "37%"),
        ("Decoding is a few percent of the time.", "few percent"),
        ("That is 40 times faster.", "40 times"),
        ("That is 2.5x as fast.", "2.5x"),
        ("It runs at twice the speed.", "twice the"),
        ("It has a third of its speed.", "a third"),
        ("That takes half the time.", "half the"),
        ("The loss fell from 5.5 to 2.96.", "5.5"),
        ("The error is 1.5e-7 of the norm.", "1.5e-7"),
        ("It answers 18 of 24 questions.", "18 of 24"),
        ("| method | 6.01 nats |", "6.01 nats"),
    ],
)
def test_a_measured_time_size_rate_or_ratio_is_found(sentence: str, figure: str) -> None:
    assert figure in found(f"# Page\n\n{sentence}\n")


def test_a_figure_is_found_with_its_page_and_line() -> None:
    figure = next(figures("docs/page.md", "# Page\n\n```text\n5 MB\n```\n\nThe peak\nis 42.2 MB here.\n"))
    assert figure == ("docs/page.md", 8, "42.2 MB", "is 42.2 MB here.")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- figures:core -->\n| peak |\n|---|\n| 42.2 MB |\n\nOne step takes 3 s.\n<!-- /figures:core -->\n",
        "```python\nbudget = 200  # 200 MB\n```\n",
        "    make demo       # takes three minutes\n",
        "`sleep 5 s` is code, and so is `a = 0.5`.\n",
        "[memory](memory.md#at-200-MB) and <!-- 5 MB --> nothing.\n",
        "Qwen2.5-0.5B has 24 blocks, a second graph and version 0.1.0 of 3 files at sequence 256.\n",
    ],
)
def test_figures_of_benchmarks_code_and_names_are_none(text: str) -> None:
    assert found(text) == []


def test_a_constant_is_allowed_in_its_phrase_on_its_page_alone() -> None:
    text = "A header has 8 bytes of\nlength. A step takes 8 s."
    entry = Allowed("page.md", "8 bytes of length", "the format's")
    assert found(text, entry) == ["8 s"]
    assert found(text, entry._replace(page="other.md")) == ["8 bytes", "8 s"]


def test_an_allowed_constant_that_is_gone_is_found() -> None:
    gone, no_figure = Allowed("page.md", "16 MiB of JSON", "limit"), Allowed("page.md", "of JSON", "limit")
    assert unused([gone, no_figure], {"page.md": "8 MiB of JSON"}) == [gone, no_figure]
