# SPDX-License-Identifier: Apache-2.0
"""The prompts and openings that a model rehearses: their kinds, their numbers, and that no two are alike."""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files
from itertools import combinations

import pytest

REHEARSED = ["explain", "list", "write", "advise", "chat", "refuse", "facts", "arithmetic", "continue"]
HELD_OUT = ["compare (held out)", "rewrite (held out)", "describe (held out)"]
LANGUAGES = ["de", "es", "fr", "it", "pt"]
PROMPTS_OF_HELD_OUT_KINDS = re.compile(
    r"\b(compare|differ\w*|better|bigger|heavier|rephrase|rewrite|reword|shorten|translate|summari[sz]e|describe|look like)\b",
    re.IGNORECASE,
)


def kinds_of(name: str) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for line in (files("bespoke.data") / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            assert line[2:] not in kinds, f"two groups of the kind {line[2:]}"
            kinds[line[2:]] = lines = []
        else:
            assert line, f"an empty line in {name}"
            assert line == line.strip(), f"spaces at an end of {line!r}"
            lines.append(line)
    return kinds


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def test_english_prompts_have_nine_rehearsed_kinds_and_three_held_out_ones_of_24_each() -> None:
    kinds = kinds_of("everyday/en.txt")
    assert list(kinds) == REHEARSED + HELD_OUT
    assert {len(lines) for lines in kinds.values()} == {24}


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_languages_have_three_prompts_of_the_same_kinds(language: str) -> None:
    kinds = kinds_of(f"everyday/{language}.txt")
    assert list(kinds) == REHEARSED + HELD_OUT
    assert {len(lines) for lines in kinds.values()} == {3}


def test_english_openings_have_nine_rehearsed_kinds_and_three_held_out_ones_of_24_each() -> None:
    kinds = kinds_of("openings/en.txt")
    assert len(kinds) == 12
    assert [kind.endswith(" (held out)") for kind in kinds] == [False] * 9 + [True] * 3
    assert {len(lines) for lines in kinds.values()} == {24}


def test_each_opening_has_6_to_15_words_and_ends_within_a_sentence() -> None:
    for opening in (line for lines in kinds_of("openings/en.txt").values() for line in lines):
        assert 6 <= len(opening.split()) <= 15, opening
        assert opening[-1].isalpha(), opening


@pytest.mark.parametrize("name", ["openings/en.txt", *(f"everyday/{language}.txt" for language in ["en", *LANGUAGES])])
def test_no_two_texts_of_a_file_share_most_of_their_words(name: str) -> None:
    texts = [line for lines in kinds_of(name).values() for line in lines]
    assert [text for text, times in Counter(texts).items() if times > 1] == []
    words_of = {text: words(text) for text in texts}
    for one, other in combinations(texts, 2):
        shared, all_words = words_of[one] & words_of[other], words_of[one] | words_of[other]
        assert len(shared) <= 0.6 * len(all_words), f"nearly the same: {one!r} and {other!r}"


def test_no_rehearsed_prompt_asks_for_what_a_held_out_kind_asks_for() -> None:
    kinds = kinds_of("everyday/en.txt")
    rehearsed = [line for kind in REHEARSED for line in kinds[kind]]
    assert [line for line in rehearsed if PROMPTS_OF_HELD_OUT_KINDS.search(line)] == []
    assert sum(bool(PROMPTS_OF_HELD_OUT_KINDS.search(line)) for kind in HELD_OUT for line in kinds[kind]) > 36
