# SPDX-License-Identifier: Apache-2.0
"""One set of rows in each of the layouts, separators, line ends and encodings that files have: read as the same examples.

The writers are Python's `csv` and `json`, and its codecs; hand-written texts are those that only other programs write.
"""

from __future__ import annotations

import csv
import io
import json
import random
from itertools import product
from typing import Any

import pytest

from bespoke.data.reading import csv_rows, text_lines
from bespoke.errors import ConfigError, DataError
from tests.unit.data.reading.conftest import Read

PAIRS = [
    {"prompt": "Where is the key?", "completion": "Under the blue pot."},
    {"prompt": 'He said "hi"; then, left\t.', "completion": "Café, näher — 你好"},
    {"prompt": "Two\nlines", "completion": "a, b; c\td"},
]
TALKS = [
    {"messages": [{"role": "user", "content": one["prompt"]}, {"role": "assistant", "content": one["completion"]}]}
    for one in PAIRS
]


def table(rows: list[dict[str, str]], separator: str, line_end: str = "\r\n", quoting: int = csv.QUOTE_MINIMAL) -> str:
    if line_end != "\r\n":
        quoting = csv.QUOTE_ALL  # Python's writer leaves the other line end unquoted
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), delimiter=separator, lineterminator=line_end, quoting=quoting)  # type: ignore[arg-type]
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize("encoding", [None, "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_tables_of_any_separator_line_end_and_unicode_are_read(
    read: Read, encoding: str | None, separator: str, line_end: str
) -> None:
    text = table(PAIRS, separator, line_end)
    if encoding in ("utf-16-le", "utf-16-be"):
        text = "\ufeff" + text
    assert read("a.csv", text.encode(encoding or "utf-8"))[0] == PAIRS
    if separator == "\t":
        assert read("a.tsv", text.encode(encoding or "utf-8"))[0] == PAIRS


@pytest.mark.parametrize("seed", range(20))
def test_random_tables_come_back(read: Read, seed: int) -> None:
    """Tables whose cells have separators, quotes and line ends, and whose header quotes them too."""
    chance = random.Random(seed)
    separator, line_end, encoding = (
        chance.choice(",;\t"),
        chance.choice(["\n", "\r\n", "\r"]),
        chance.choice(["utf-8", "utf-16"]),
    )
    cell = lambda: "".join(chance.choice("abé,;\t\"\n\r' 你") for _ in range(chance.randrange(30))) + "."  # noqa: E731
    others = [f"column {number}{chance.choice(',;')}" for number in range(chance.randrange(3))]
    rows = [{name: cell() for name in ("prompt", "completion", *others)} for _ in range(chance.randrange(1, 30))]
    quoting = csv.QUOTE_ALL if others else chance.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
    found, report = read("a.csv", table(rows, separator, line_end, quoting).encode(encoding))
    assert found == [{name: row[name] for name in ("prompt", "completion")} for row in rows]
    assert report.unknown_keys == dict.fromkeys(others, len(rows))


def test_excel_may_name_its_separator_in_a_line_of_its_own(read: Read) -> None:
    assert read("a.csv", ("sep=;\r\n" + table(PAIRS, ";")).encode())[0] == PAIRS
    with pytest.raises(DataError, match=r"a\.csv, row 4: got 3 values.*semicolons"):
        read("a.csv", b"sep=;\r\nprompt;completion\r\na;b\r\na;b;c\r\n")


def test_a_cell_may_be_longer_than_pythons_csv_takes(read: Read) -> None:
    before = csv.field_size_limit()
    rows = [{"text": "The sea was calm. " * 20_000}, {"text": "And\n" * 50_000}]
    assert read("a.csv", table(rows, ",").encode())[0] == rows
    assert csv.field_size_limit() == before == 131_072


DOCUMENTS: dict[str, Any] = {
    "an array": lambda rows: rows,
    "a list under one key": lambda rows: {"train": rows},
    "a list under data": lambda rows: {"version": 1, "data": rows},
    "a list one level deeper": lambda rows: {"data": {"rows": rows}, "name": "mine"},
    "columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    "columns as pandas writes them": lambda rows: {
        name: {str(i): row[name] for i, row in enumerate(rows)} for name in rows[0]
    },
}


@pytest.mark.parametrize(
    ("layout", "rows", "ending", "indent"),
    list(product(DOCUMENTS, (PAIRS, TALKS), ("json", "jsonl", "ndjson"), (None, 2))),
)
def test_documents_of_any_layout_are_read(
    read: Read, layout: str, rows: list[dict[str, Any]], ending: str, indent: int | None
) -> None:
    text = json.dumps(DOCUMENTS[layout](rows), indent=indent)
    for encoding in ("utf-8", "utf-16"):
        found, report = read(f"a.{ending}", text.encode(encoding))
        assert found == rows
        assert report.rows == len(rows)
        assert set(report.unknown_keys) == {"a list under data": {"version"}, "a list one level deeper": {"name"}}.get(
            layout, set()
        )


@pytest.mark.parametrize("ending", ["json", "jsonl"])
@pytest.mark.parametrize("indent", [None, 1, 4])
def test_one_object_and_objects_behind_each_other_are_rows(read: Read, ending: str, indent: int | None) -> None:
    for rows in (PAIRS, TALKS, PAIRS[:1], TALKS[:1]):
        text = "\n".join(json.dumps(row, indent=indent) for row in rows)
        assert read(f"a.{ending}", text.encode())[0] == rows
        assert read(f"a.{ending}", text.replace("\n", "\r").encode())[0] == rows


def test_lists_of_messages_are_conversations(read: Read) -> None:
    talks = [one["messages"] for one in TALKS]
    for content in (json.dumps(talks), json.dumps({"train": talks}, indent=1), "\n".join(map(json.dumps, talks))):
        assert read("a.jsonl", content.encode())[0] == TALKS
    assert read("a.json", json.dumps(talks[0], indent=1).encode())[0] == TALKS[:1]


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_a_text_is_read_in_utf_16_too(read: Read, name: str) -> None:
    assert read(name, "# Monday\r\n\r\nSoup — with leeks.\n".encode("utf-16"))[0] == [
        {"text": "# Monday\r\n\r\nSoup — with leeks.\n"}
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt"])
def test_another_encoding_is_read_when_it_is_named(read: Read, name: str) -> None:
    rows = [{"text": "Café für 3 €"}]
    text = {"csv": table(rows, ","), "txt": rows[0]["text"]}.get(name[2:], json.dumps(rows[0], ensure_ascii=False))
    with pytest.raises(DataError, match="encoding='cp1252'"):
        read(name, text.encode("cp1252"))
    assert read(name, text.encode("cp1252"), encoding="cp1252")[0] == rows
    assert read(name, text.encode("utf-8-sig"), encoding="utf-8")[0] == rows
    with pytest.raises(DataError, match=r"row [12]: got bytes that are not ascii"):
        read(name, text.encode(), encoding="ascii")
    for wrong in ("no such", "zip", "", "\0"):
        with pytest.raises(ConfigError, match="encoding"):
            read(name, b"", encoding=wrong)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"prompt,completion\nhello,wor\0ld\n", r"row 2: got a NUL byte"),
        ("a.txt", "no mark".encode("utf-16-le"), r"row 1: got a NUL byte.*encoding='utf-16-le'"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\0"}\n', r"row 2: got a NUL byte"),
        ("a.txt", b"", r"a\.txt: got an empty file"),
        ("a.md", b" \n\n", r"a\.md: got an empty file"),
        ("a.json", b'{"train": [{"text": "a"}], "test": [{"text": "b"}]}', r"several lists of rows: 'train', 'test'"),
        ("a.json", b'{"text": "a"}\n{\n"text": "b"\n', r"row 2: got no JSON"),
        ("a.jsonl", b'{"text": \n{"text": "b"}\n{"text": "c"}\n', r"row 1: got no JSON: Expecting value: line 2"),
        ("a.jsonl", b'{\n "text": "a"\n}\n{\n "text": b\n}\n', r"row 4: got no JSON"),
        ("a.csv", b"prompt;completion\na;b;c\n", r"row 2: got 3 values.*semicolons"),
        ("a.tsv", b"prompt\tcompletion\na\tb\tc\n", r"row 2: got 3 values.*tabs"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_row(read: Read, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(name, content)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.txt", "a.md", "a.tsv", "a.ndjson"])
@pytest.mark.parametrize("begin", [b'{"text": "', b'text\n"', b"\xff\xfe"])
def test_a_line_or_a_text_without_end_is_refused(
    read: Read, monkeypatch: pytest.MonkeyPatch, name: str, begin: bytes
) -> None:
    """The bound is lowered: half a gigabyte takes too long to write."""
    monkeypatch.setattr(text_lines, "MOST_BYTES", 1000)
    monkeypatch.setattr(csv_rows, "MOST_BYTES", 1000)
    for filling in (b"a" * 5000, b"a\n" * 5000):
        with pytest.raises(DataError) as caught:
            read(name, begin + filling)
        assert len(str(caught.value)) < 600
