# SPDX-License-Identifier: Apache-2.0
"""The fields of a model card, as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke.model.card import card_languages, read_card


@pytest.mark.parametrize(
    ("block", "languages"),
    [
        ("language: en", ["en"]),
        ("language:\n- en\n- pt-BR\nlicense: mit", ["en", "pt"]),
        ("license: mit\nlanguage: [fr, 'de']", ["fr", "de"]),
        ("language:\n  - multilingual\n  - es", ["es"]),
        ("license: mit", []),
        ("tags:\n- de\n- en", []),
    ],
)
def test_languages_are_read_as_codes_of_two_letters(tmp_path: Path, block: str, languages: list[str]) -> None:
    (tmp_path / "README.md").write_text(f"---\n{block}\n---\n# A model\nlanguage: it\n", encoding="utf-8")
    assert card_languages(tmp_path) == languages


def test_a_page_without_fields_has_none(tmp_path: Path) -> None:
    assert read_card(tmp_path) == {}
    (tmp_path / "README.md").write_text("# A model\nlanguage: en\n", encoding="utf-8")
    assert read_card(tmp_path) == {}
