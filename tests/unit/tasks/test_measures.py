# SPDX-License-Identifier: Apache-2.0
"""Shares of right answers. Labels are held against scikit-learn; answers against values that SQuAD's evaluate-v2.0.py gives, worked
out by hand."""

from __future__ import annotations

import random

import pytest
from sklearn.metrics import f1_score

from bespoke.tasks.measures import exact_match, macro_f1, normalized, parse_call, same_call, token_f1


@pytest.mark.parametrize("labels", [2, 3, 7, 40])
def test_macro_f1_is_that_of_scikit_learn(labels: int) -> None:
    """With many labels some are never right, some never said, and some neither."""
    chance = random.Random(labels)
    names = [f"label {number}" for number in range(labels)]
    for _ in range(5):
        right = chance.choices(names, k=30)
        said = [one if chance.random() < 0.5 else chance.choice(names) for one in right]
        assert macro_f1(said, right) == pytest.approx(
            f1_score(right, said, average="macro", zero_division=0), abs=1e-12
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  The  Eiffel Tower!\n", "eiffel tower"),
        ("A man, a plan; an answer.", "man plan answer"),
        ("there", "there"),  # an article is a whole word
        ("U.S.A.", "usa"),
        ("mother-in-law's", "motherinlaws"),
        ("1,000", "1000"),
        ("Łódź – the city", "łódź – city"),  # strips ASCII punctuation alone
        ("the", ""),
    ],
)
def test_texts_are_normalized_as_squad_does(text: str, expected: str) -> None:
    assert normalized(text) == expected


@pytest.mark.parametrize(
    ("said", "right", "exact", "f1"),
    [
        ("Denver Broncos", ["Denver Broncos"], True, 1.0),
        ("the Denver broncos.", ["Denver Broncos"], True, 1.0),
        ("Denver", ["Denver Broncos"], False, 2 / 3),  # P 1, R 1/2
        ("the team Denver Broncos won", ["Denver Broncos"], False, 2 / 3),  # P 2/4, R 1
        ("Broncos Denver", ["Denver Broncos"], False, 1.0),  # a bag of words
        ("yes yes yes", ["yes yes no"], False, 2 / 3),  # two of three in common
        ("Carolina", ["Denver Broncos"], False, 0.0),
        ("Carolina Panthers", ["Denver Broncos", "the Panthers", "Carolina"], False, 2 / 3),  # the best of three
        ("3", ["three", "3"], True, 1.0),
        ("", ["three"], False, 0.0),
        ("the", ["A"], True, 1.0),  # neither has a word: no answer to no answer
        ("the", ["B"], False, 0.0),
    ],
)
def test_answers_are_compared_as_squad_does(said: str, right: list[str], exact: bool, f1: float) -> None:
    assert exact_match(said, right) is exact
    assert token_f1(said, right) == pytest.approx(f1, abs=1e-12)


CALL = '{"name": "PlayMusic", "arguments": {"year": "1959", "service": "Iheart"}}'


@pytest.mark.parametrize(
    "other",
    [
        '{"name":"PlayMusic","arguments":{"year":"1959","service":"Iheart"}}',
        ' {\n "arguments": {"service": "Iheart", "year": "1959"},\n "name": "PlayMusic"}\n',
        '{"name": "PlayMusic", "arguments": {"year": "\\u0031959", "service": "Iheart"}}',
    ],
)
def test_order_of_keys_spaces_and_escapes_do_not_count(other: str) -> None:
    assert same_call(parse_call(CALL), parse_call(other))


@pytest.mark.parametrize(
    "other",
    [
        CALL.replace("PlayMusic", "playMusic"),
        CALL.replace('"1959"', "1959"),
        CALL.replace('"1959"', '"1960"'),
        CALL.replace(', "service": "Iheart"', ""),
        CALL.replace('"Iheart"}', '"Iheart", "artist": "Elvis"}'),
        CALL.replace('"year"', '"Year"'),
    ],
)
def test_another_function_argument_or_value_is_another_call(other: str) -> None:
    assert parse_call(other) is not None
    assert not same_call(parse_call(CALL), parse_call(other))


def with_value(value: str) -> str:
    return f'{{"name": "f", "arguments": {{"x": {value}}}}}'


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1", "1.0", True),
        ("1", "true", False),
        ("0", "false", False),
        ("null", "false", False),
        ("[1, 2]", "[1, 2]", True),
        ("[1, 2]", "[2, 1]", False),
        ("[1]", "1", False),
        ('{"a": 1, "b": [true]}', '{"b": [true], "a": 1}', True),
        ('{"b": [true]}', '{"b": [1]}', False),
        ('[{"a": 1}]', '[{"a": 1, "b": 1}]', False),
        ("1e2", "100", True),
    ],
)
def test_arguments_are_values_of_json(one: str, other: str, same: bool) -> None:
    assert same_call(parse_call(with_value(one)), parse_call(with_value(other))) is same


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PlayMusic",
        "[]",
        "null",
        CALL[:-1],
        f"{CALL} {CALL}",
        f"Sure: {CALL}",
        '{"name": "f"}',
        '{"arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": 3, "arguments": {}}',
        '{"name": "f", "arguments": []}',
        '{"name": "f", "arguments": {}, "id": 1}',
        '{"name": "f", "arguments": {"x": 1, "x": 2}}',
        with_value("NaN"),
        "[" * 100_000,
    ],
)
def test_what_is_no_call_equals_nothing(text: str) -> None:
    assert parse_call(text) is None
    assert not same_call(parse_call(text), parse_call(text))
    assert not same_call(parse_call(text), parse_call(CALL))
