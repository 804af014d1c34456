# SPDX-License-Identifier: Apache-2.0
"""Exports and documents with anything in the place of any of their parts: examples, or an error of ours of bounded size."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.files import read_examples
from bespoke.data.reading.exports.kinds import read_export
from bespoke.errors import BespokeError

CHATGPT = [
    {
        "mapping": {
            "0": {"parent": None, "children": ["1"], "message": None},
            "1": {
                "parent": "0",
                "children": ["2"],
                "message": {
                    "author": {"role": "user"},
                    "content": {"content_type": "text", "parts": ["a"]},
                    "metadata": {},
                    "weight": 1,
                },
            },
            "2": {
                "parent": "1",
                "children": [],
                "message": {
                    "author": {"role": "assistant"},
                    "content": {"content_type": "text", "parts": ["b"]},
                    "recipient": "all",
                },
            },
        },
        "current_node": "2",
    }
]
CLAUDE = [
    {
        "chat_messages": [
            {
                "sender": "human",
                "text": "a",
                "content": [{"type": "text", "text": "a"}],
                "attachments": [],
                "files": [],
            },
            {"sender": "assistant", "text": "b"},
        ]
    }
]
TELEGRAM = {
    "chats": {
        "list": [
            {
                "messages": [
                    {
                        "type": "message",
                        "from": "Mia",
                        "date": "2024-05-01T10:00:00",
                        "text": ["a", {"type": "link", "text": "b"}],
                    },
                    {"type": "message", "from": "Me", "date_unixtime": "1714557600", "text": "b", "photo": "x"},
                ]
            }
        ]
    }
}
SHAREGPT = [{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}]
ALPACA = {"data": [{"instruction": "a", "input": "b", "output": "c"}]}
COLUMNS = {"prompt": ["a", "b"], "completion": ["c", "d"]}
MESSAGES = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
DOCUMENTS = {
    "chatgpt": CHATGPT,
    "claude": CLAUDE,
    "telegram": TELEGRAM,
    "sharegpt": SHAREGPT,
    "alpaca": ALPACA,
    "columns": COLUMNS,
    "messages": MESSAGES,
}
ANYTHING: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    10**400,
    float("nan"),
    "",
    " ",
    "\0",
    "\ud83d",
    "x" * 100_000,
    "{x}",
    [],
    [None],
    [[]],
    [[[]]],
    {},
    {"": None},
    {"role": "user", "content": "a"},
    [{"role": "user"}],
    "2",
    "inf",
    "9999-99-99T00:00:00",
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    whole = copy.deepcopy(value)
    at = whole
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return whole


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_anything_in_the_place_of_any_part_is_examples_or_an_error_of_ours(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.json"
    read = taken = 0
    for place in places(DOCUMENTS[kind]):
        for new in ANYTHING:
            path.write_text(json.dumps(put(DOCUMENTS[kind], place, new)), encoding="utf-8")
            for format in (None, kind):
                try:
                    if format in ("chatgpt", "claude", "telegram"):
                        found = list(read_export(path, format, "Me" if kind == "telegram" else None, Counter()))  # type: ignore[arg-type]
                    else:
                        found = list(read_examples(path, format if format in ("sharegpt", "alpaca") else None))  # type: ignore[arg-type]
                    taken += 1
                    assert all(isinstance(example, dict) for _, example in found)
                except BespokeError as error:
                    assert len(str(error)) < 5000  # noqa: PT017  every one of them
                read += 1
    assert 0 < taken < read


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_are_examples_or_an_error_of_ours(tmp_path: Path, seed: int) -> None:
    """Bytes of a real file, some of them changed, left out or repeated."""
    chance = random.Random(seed)
    chat = "[31.12.23, 21:15:03] Mia: \u200eaudio omitted\r\n[31.12.23, 9:15:03 p. m.] Me: a\nb\r\n" * 3
    chat += "12/31/23, 9:15\u202fPM - Mia: c: d\n"
    texts = {
        ".txt": chat,
        ".csv": 'prompt;completion\r\n"a;""b";c\r\nd;e\r\n',
        ".json": json.dumps(CHATGPT, indent=1),
        ".jsonl": json.dumps(MESSAGES[0]) + "\n{}\n",
    }
    for ending, text in texts.items():
        for _ in range(40):
            data = bytearray(text.encode(chance.choice(["utf-8", "utf-16", "utf-8-sig"])))
            for _ in range(chance.randrange(1, 6)):
                at = chance.randrange(len(data))
                change = chance.randrange(3)
                data[at : at + (change != 2)] = bytes([chance.randrange(256)]) if change else data[at : at + 20]
            path = tmp_path / f"a{ending}"
            path.write_bytes(data)
            for read in (lambda: read_examples(path), lambda: read_export(path, "whatsapp", "Me", Counter())):  # noqa: B023
                try:
                    list(read())
                except BespokeError as error:
                    assert len(str(error)) < 5000  # noqa: PT017


@pytest.mark.parametrize(
    "line",
    [
        "<" + " a" * 100_000,
        "\u200e<" * 100_000,
        "<attached: " * 50_000,
        " " * 200_000 + "x",
        "a.pdf (" * 50_000,
        "changed the subject " * 20_000,
        ": " * 100_000,
        "\u200e" * 200_000,
        "31.12.23, 21:15:03" * 10_000,
    ],
)
def test_a_long_line_of_a_chat_is_read_at_once(tmp_path: Path, line: str) -> None:
    """A search that goes back over the line at each of its places would take hours: a test's time limit is enough."""
    stamp = "[31.12.23, 21:15:03] "
    (tmp_path / "a.txt").write_text(
        f"{stamp}Mia: Where?\n{stamp}Me: Here.\n{stamp}Me: {line}\n{stamp}{line}\n{line}\n", encoding="utf-8"
    )
    found = list(read_export(tmp_path / "a.txt", "whatsapp", "Me", Counter()))
    assert found[0][1]["messages"][1]["content"].startswith("Here.")
