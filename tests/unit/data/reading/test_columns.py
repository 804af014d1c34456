# SPDX-License-Identifier: Apache-2.0
"""Columns that are joined, and what of a row is not used."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest

from bespoke.errors import ConfigError, DataError
from tests.unit.data.reading.conftest import Read

ROW = {
    "instruction": "Translate.",
    "input": "cat",
    "output": "Katze",
    "n": 3,
    "none": None,
    "empty": " ",
    "{odd}": "odd",
    "a b": "x",
}


@pytest.mark.parametrize(
    ("template", "joined"),
    [
        ("{instruction}\n\n{input}", "Translate.\n\ncat"),
        ("{instruction}\n\n{none}", "Translate."),
        ("{instruction}\n\n{empty}", "Translate."),
        ("{instruction}\n\n{none}\n\n{input}", "Translate.\n\ncat"),
        ("{none}\n\n{input}", "cat"),
        ("{none} {empty}\n{input}", "cat"),
        ("Q: {instruction}\nText: {none}\nA:", "Q: Translate.\nText:\nA:"),
        ("{input}{input} {n}", "catcat 3"),
        ("{{{input}}} {{n}}", "{cat} {n}"),
        ("{a b}: {input}", "x: cat"),
        ("{odd}", "odd"),  # a column of this very name
        ("instruction", "Translate."),
    ],
)
def test_columns_are_joined(read: Read, template: str, joined: str) -> None:
    found, report = read("a.jsonl", json.dumps(ROW).encode(), fields={"prompt": template, "completion": "output"})
    assert found == [{"prompt": joined, "completion": "Katze"}]
    used = {"{odd}"} if template == "{odd}" else {"instruction"} if template == "instruction" else _names(template)
    assert set(report.unknown_keys) == ROW.keys() - used - {"output"}
    if not {"none", "empty", "{odd}"} & used and template != "instruction":
        assert joined == template.format(**ROW)  # Python's own templates say the same


def _names(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("name", ["prompt", "completion", "text", "chosen"])
def test_a_column_that_is_not_there_is_named(read: Read, name: str) -> None:
    with pytest.raises(
        DataError, match=rf"row 1: got the keys 'text', 'x'; expected 'answer', which fields names for '{name}'"
    ):
        read("a.jsonl", b'{"text": "a", "x": "b"}', fields={name: "{x} {answer}"})


def test_a_table_is_joined_too(read: Read) -> None:
    found, report = read(
        "a.csv",
        b"q,more,a,id\nWho?,,Me,1\nWhere?,Exactly.,Here,2\n",
        fields={"prompt": "{q} {more}", "completion": "a"},
    )
    assert found == [{"prompt": "Who?", "completion": "Me"}, {"prompt": "Where? Exactly.", "completion": "Here"}]
    assert report.unknown_keys == {"id": 2}


@pytest.mark.parametrize(
    ("row", "settings", "unused"),
    [
        ({"text": "a", "name": "n", "weight": 0}, {}, {"name", "weight"}),
        ({"messages": [{"role": "user", "content": "a"}], "tools": [], "name": "n"}, {}, {"tools", "name"}),
        ({"prompt": "a", "completion": "b", "text2": "c"}, {}, {"text2"}),
        ({"question": "a", "prompt": "b", "completion": "c"}, {"fields": {"prompt": "question"}}, {"prompt"}),
        ({"text": "a", "prompt": "b", "completion": "c"}, {"format": "text"}, {"prompt", "completion"}),
        ({"instruction": "a", "input": "b", "output": "c", "history": [], "system": "s"}, {}, {"history", "system"}),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "id": 1}, {}, {"id"}),
        (
            {"instruction": "a", "input": "b", "output": "c"},
            {"fields": {"prompt": "instruction", "completion": "output"}},
            {"input"},
        ),
    ],
)
def test_every_key_that_is_not_used_is_counted(
    read: Read, row: dict[str, Any], settings: dict[str, Any], unused: set[str]
) -> None:
    _, report = read("a.jsonl", (json.dumps(row) + "\n").encode() * 3, **settings)
    assert report.unknown_keys == dict.fromkeys(unused, 3)


def test_rows_of_a_kind_have_their_own_keys_to_map(read: Read) -> None:
    talk = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    found, _ = read("a.jsonl", json.dumps({"chat": talk}).encode(), format="sharegpt", fields={"conversations": "chat"})
    assert found == [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
    with pytest.raises(ConfigError, match="conversations"):
        read("a.jsonl", b"", format="sharegpt", fields={"prompt": "chat"})
    with pytest.raises(ConfigError, match="no columns"):
        read("a.json", b"", format="chatgpt", fields={"prompt": "chat"})
