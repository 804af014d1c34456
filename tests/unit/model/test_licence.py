# SPDX-License-Identifier: Apache-2.0
"""A bundle carries the licence of its base model."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke.errors import ConfigError
from bespoke.model.licence import find_licence


def test_the_model_card_names_the_licence_and_the_files_hold_its_terms(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\nlanguage:\n- en\nlicense: apache-2.0\ntags:\n- x\n---\n# Model\n")
    (tmp_path / "LICENSE").write_text("Apache License\n")
    (tmp_path / "NOTICE.txt").write_text("Notice\n")
    (tmp_path / "license_check.py").mkdir()
    text, files = find_licence(tmp_path)
    assert text == "apache-2.0"
    assert [path.name for path in files] == ["LICENSE", "NOTICE.txt"]


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: other\nlicense_name: qwen-research\n---\n", "qwen-research"),
        ("---\nlicense:\n- mit\n- apache-2.0\ntags:\n- no\n---\n", "mit, apache-2.0"),
        ("---\nlicense: 'gemma'\n---\n", "gemma"),
    ],
)
def test_other_ways_of_naming_it(card: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(card)
    assert find_licence(tmp_path).text == expected


def test_without_a_card_the_licence_file_speaks_for_itself(stories: Path) -> None:
    text, files = find_licence(stories)
    assert "MIT" in text
    assert files == (stories / "LICENSE",)


def test_what_the_developer_says_wins(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("\n  Some terms\n")
    assert find_licence(tmp_path).text == "Some terms"
    assert find_licence(tmp_path, "my own").text == "my own"


@pytest.mark.parametrize("card", [None, "# Only a title\n", "---\ntags: x\n---\nlicense: mit\n"])
def test_a_model_without_a_licence_is_refused_with_what_to_say(card: str | None, tmp_path: Path) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    with pytest.raises(ConfigError) as caught:
        find_licence(tmp_path)
    assert "licence=" in caught.value.next_step
