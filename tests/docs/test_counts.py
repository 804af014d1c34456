# SPDX-License-Identifier: Apache-2.0
"""How the code and the pages read, held by counts: docstrings begin with a noun or a verb, and sentences have few commas."""

from __future__ import annotations

import pytest
from tools.count_words import (
    Commas,
    commas,
    comments_with_of,
    docstrings_with_of,
    engine_choices,
    pages,
    sources,
    target_contracts,
    unformatted_lines,
    words,
)

MOST_COMMAS = 0.8  # a sentence, over all of docs


def test_no_docstring_begins_with_of() -> None:
    files = sources(("sdk", "plugins", "tools"))
    assert [f"{place.file}:{place.line}" for file in files for place in docstrings_with_of(*file)] == []


def test_docs_have_few_commas_a_sentence() -> None:
    counts = [commas(text) for page, text in pages().items() if page.startswith("docs/")]
    total = Commas(sum(count.commas for count in counts), sum(count.sentences for count in counts))
    assert total.sentences > 1000
    assert total.rate <= MOST_COMMAS


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("One, two and three. Four.\n", (1, 2)),
        ("One, two,\nthree\n", (2, 1)),
        ("- One, two\n- Three. Four, five!\n", (2, 3)),
        ("1,024 tokens of e.g. `a, b` and [c, d](e.md).\n", (1, 1)),
        ("# One, two\n\n| a, b | c, d |\n\n```python\nf(1, 2)\n```\n\nOne.\n", (0, 1)),
        ("<!-- figures:x -->\n| a |\n\nOne, two.\n<!-- /figures:x -->\n\nIs it? (No.) **Yes.** So\n", (0, 4)),
    ],
)
def test_commas_and_sentences_of_prose_are_counted(page: str, count: tuple[int, int]) -> None:
    assert commas(page) == count


def test_each_kind_of_place_is_found_in_code() -> None:
    code = (
        '"""Of a module."""\n'
        "# Of a comment\n# that goes on, of two lines\nx = 1  # of x\n"
        "class A(Protocol): ...\nclass ATarget(Target, Protocol):\n    '''Offers it.'''\n"
        'if engine == "torch" or error.name == "torch":\n    found = 1  # fmt: skip\n'
    )

    def lines(finder: object) -> list[int]:
        return [place.line for place in finder("a.py", code)]  # type: ignore[operator]

    assert lines(docstrings_with_of) == [1]
    assert lines(comments_with_of) == [2, 4]
    assert lines(target_contracts) == [6]
    assert lines(engine_choices) == [8]
    assert lines(unformatted_lines) == [9]
    assert [place.line for place in words("found", "a.py", code)] == [9]
