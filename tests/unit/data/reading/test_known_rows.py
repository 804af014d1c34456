# SPDX-License-Identifier: Apache-2.0
"""Rows of ShareGPT and Alpaca, rows without an answer, repeats, and tables of chats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bespoke.errors import ConfigError, DataError
from tests.unit.data.reading.conftest import Read


def talk(*turns: tuple[str, Any], keys: tuple[str, str] = ("from", "value")) -> dict[str, Any]:
    return {"conversations": [dict(zip(keys, turn, strict=True)) for turn in turns]}


def messages(*contents: str, system: str | None = None) -> dict[str, Any]:
    roles = ["user", "assistant"] * len(contents)
    first = [] if system is None else [{"role": "system", "content": system}]
    return {"messages": first + [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)]}


@pytest.mark.parametrize("format", [None, "sharegpt"])
@pytest.mark.parametrize(
    ("row", "example"),
    [
        (talk(("human", "a"), ("gpt", "b")), messages("a", "b")),
        (talk(("user", "a"), ("assistant", "b"), ("human", "c"), ("bot", "d")), messages("a", "b", "c", "d")),
        (talk(("system", "s"), ("Human", "a"), ("GPT", "b")), messages("a", "b", system="s")),
        (talk(("user", "a"), ("assistant", "b"), keys=("role", "content")), messages("a", "b")),
    ],
)
def test_sharegpt_is_a_conversation(
    read: Read, format: str | None, row: dict[str, Any], example: dict[str, Any]
) -> None:
    for name, content in (("a.jsonl", json.dumps(row)), ("a.json", json.dumps([row], indent=2))):
        found, report = read(name, content.encode(), format=format)
        assert found == [example]
        assert report.format == "messages"


def test_other_keys_of_a_turn_stay(read: Read) -> None:
    row = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "weight": 0, "role": "x"}]}
    found, _ = read("a.jsonl", json.dumps(row).encode())
    assert found[0]["messages"][1] == {"role": "assistant", "content": "b", "weight": 0}


@pytest.mark.parametrize("format", [None, "alpaca"])
@pytest.mark.parametrize(
    ("row", "prompt"),
    [({"input": "cat"}, "Say.\n\ncat"), ({"input": ""}, "Say."), ({"input": None}, "Say."), ({}, "Say.")],
)
def test_alpaca_keeps_its_input(read: Read, format: str | None, row: dict[str, Any], prompt: str) -> None:
    found, report = read(
        "a.json", json.dumps([{"instruction": "Say.", **row, "output": "Katze"}]).encode(), format=format
    )
    assert found == [{"prompt": prompt, "completion": "Katze"}]
    assert (report.format, report.unknown_keys) == ("prompt_completion", {})


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        (
            talk(("function_call", "a")),
            {},
            r"row 1\.conversations\[0\]\.from: got 'function_call'; expected one of human, user, gpt",
        ),
        ({"conversations": [3]}, {"format": "sharegpt"}, r"row 1\.conversations\[0\]: got a number"),
        ({"conversations": "a"}, {"format": "sharegpt"}, r"row 1\.conversations: got text"),
        ({"instruction": "a"}, {"format": "alpaca"}, r"row 1: got the keys 'instruction', without 'output'"),
        ({"text": "a", "instruction": "b", "output": "c"}, {}, r"keys of several shapes \(text and alpaca\)"),
        ({"text": "a"}, {"format": "whatsapp"}, r"bespoke read a\.jsonl --as whatsapp --me NAME"),
    ],
)
def test_rows_that_are_not_of_the_kind_are_named(
    read: Read, row: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        read("a.jsonl", json.dumps(row).encode(), **settings)


GOOD_AND_BAD: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    (messages("a", "b"), messages("a", ""), {}, "a message of the assistant is empty"),
    (messages("a", "b"), messages("a", None), {}, "a message of the assistant is empty"),  # type: ignore[arg-type]
    (messages("a", "b"), messages("a", "b", "c", " \n"), {}, "a message of the assistant is empty"),
    ({"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": ""}, {}, "'completion' is empty"),
    ({"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": None}, {}, "'completion' is empty"),
    ({"q": "a", "a": "b"}, {"q": "a", "a": None}, {"fields": {"prompt": "q", "completion": "a"}}, "'a' is empty"),
    ({"instruction": "a", "output": "b"}, {"instruction": "a", "output": None}, {}, "'output' is empty"),
    (
        talk(("human", "a"), ("gpt", "b")),
        talk(("human", "a"), ("gpt", None)),
        {},
        "a message of the assistant is empty",
    ),
    (
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"prompt": "a", "chosen": "", "rejected": "c"},
        {},
        "'chosen' is empty",
    ),
    ({"text": "a"}, {"text": None}, {}, "'text' is empty"),
]


@pytest.mark.parametrize(("good", "bad", "settings", "reason"), GOOD_AND_BAD)
def test_a_row_without_an_answer_is_dropped_and_counted(
    read: Read, good: dict[str, Any], bad: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    lines = [json.dumps(row) for row in (good, bad, good, bad)]
    found, report = read("a.jsonl", "\n".join(lines).encode(), **settings)
    alone, _ = read("a.jsonl", lines[0].encode(), **settings)
    assert found == alone * 2
    assert (report.rows, report.dropped, report.repeated_rows) == (4, {reason: 2}, 1)
    with pytest.raises(DataError, match=rf"a\.jsonl: got 2 rows without an answer \({reason}\)"):
        read("a.jsonl", f"{lines[1]}\n{lines[1]}".encode(), **settings)


def test_a_call_of_a_tool_is_not_taken_for_an_empty_answer(read: Read) -> None:
    row = {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        ]
    }
    found, report = read("a.jsonl", json.dumps(row).encode())
    assert found == [row]
    assert not report.dropped


def test_repeats_are_counted_in_any_order_of_keys(read: Read) -> None:
    rows = [
        {"prompt": "a", "completion": "b"},
        {"completion": "b", "prompt": "a", "id": 1},
        {"prompt": "a", "completion": "c"},
    ]
    found, report = read("a.jsonl", "\n".join(json.dumps(row) for row in rows * 3).encode())
    assert (len(found), report.repeated_rows) == (9, 7)


@pytest.mark.parametrize(
    "header", ["time,sender,text", "date,sender,message", "Timestamp;From;Body", "created_at\tauthor\tcontent"]
)
def test_a_table_of_messages_is_no_table_of_examples(read: Read, header: str) -> None:
    separator = next(one for one in ",;\t" if one in header)
    content = (header + "\n" + separator.join(["2024-05-01", "Mia", "Where?"]) + "\n").encode()
    with pytest.raises(DataError, match=r"a\.csv: got one message in each row, by .*A chat in a table"):
        read("a.csv", content)
    text = header.split(separator)[2]
    found, report = read("a.csv", content, fields={"text": text})
    assert found == [{"text": "Where?"}]
    assert set(report.unknown_keys) == set(header.split(separator)[:2])
