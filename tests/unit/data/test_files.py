# SPDX-License-Identifier: Apache-2.0
"""Files to examples: real ones, and each way in which a row can be wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.files import ReadReport, read_examples
from bespoke.errors import ConfigError, DataError


def test_persona_messages_are_read_as_texts_and_other_keys_counted(data_folder: Path) -> None:
    report = ReadReport()
    path = data_folder / "personas" / "student.messages.jsonl"
    found = list(read_examples(path, report=report))
    assert [example for _, example in found] == [
        {"text": json.loads(line)["text"]} for line in path.read_text().splitlines()
    ]
    assert [number for number, _ in found] == list(range(1, 109))
    assert (report.format, report.rows) == ("text", 108)
    assert dict(report.unknown_keys) == {"persona": 108, "topic": 108, "role": 108}


def test_csv_columns_are_mapped(data_folder: Path) -> None:
    path = data_folder / "classification" / "banking77" / "test.csv"
    found = list(read_examples(path, fields={"prompt": "text", "completion": "category"}))
    with path.open(newline="") as file:
        expected = [{"prompt": row["text"], "completion": row["category"]} for row in csv.DictReader(file)]
    assert [example for _, example in found] == expected
    assert found[0][0] == 2  # row 1 is the header


def test_a_mapped_function_call_is_written_as_json(data_folder: Path) -> None:
    path = data_folder / "function_calling" / "snips" / "fc_valid.jsonl"
    for number, example in read_examples(path, fields={"prompt": "query", "completion": "call"}):
        assert isinstance(example["completion"], str)
        if number == 1:
            call = json.loads(example["completion"])
            assert call["name"] == "GetWeather"
            assert call["arguments"]["geographic_poi"] == "Tatra-Nationalpark"


def test_a_text_file_is_one_text(data_folder: Path) -> None:
    path = data_folder / "text" / "tinyshakespeare" / "input.txt"
    assert list(read_examples(path)) == [(1, {"text": path.read_text()})]


def _write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_the_first_row_decides_the_shape(tmp_path: Path) -> None:
    rows: dict[str, dict[str, Any]] = {
        "messages": {"messages": [{"role": "user", "content": "a"}]},
        "prompt_completion": {"prompt": "a", "completion": "b"},
        "text": {"text": "a"},
        "tokens": {"tokens": [1, 2], "mask": [0, 1]},
    }
    for name, row in rows.items():
        report = ReadReport()
        assert list(read_examples(_write(tmp_path / "a.jsonl", "", row, "  "), report=report)) == [(2, row)]
        assert report.format == name
    both = _write(tmp_path / "a.jsonl", {"text": "a", "prompt": "b", "completion": "c"})
    with pytest.raises(DataError, match="several shapes"):
        list(read_examples(both))
    report = ReadReport()
    assert list(read_examples(both, format="text", report=report)) == [(1, {"text": "a"})]
    assert dict(report.unknown_keys) == {"prompt": 1, "completion": 1}


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    for name, text in (("a.jsonl", '{"text": "a"}\n'), ("a.csv", "text\na\n")):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert [example for _, example in read_examples(tmp_path / name)] == [{"text": "a"}]


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_an_array_of_examples_or_lines(data_folder: Path, tmp_path: Path, indent: int | None) -> None:
    lines = (data_folder / "personas" / "student.messages.jsonl").read_text()
    rows = [json.loads(line) for line in lines.splitlines()]
    expected = list(enumerate(({"text": row["text"]} for row in rows), start=1))
    (tmp_path / "lines.json").write_text("\n" * (indent or 0) + lines)
    assert [example for _, example in read_examples(tmp_path / "lines.json")] == [example for _, example in expected]
    mark = b"\xef\xbb\xbf" if indent else b""
    (tmp_path / "array.json").write_bytes(mark + json.dumps(rows, indent=indent, ensure_ascii=False).encode() + b"\n")
    report = ReadReport()
    assert list(read_examples(tmp_path / "array.json", report=report)) == expected
    assert (report.format, report.rows, report.unknown_keys["persona"]) == ("text", len(rows), len(rows))


def test_csv_with_lines_in_its_cells_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'text,n\r\n"one\r\ntwo",1\r\n\r\nthree,2\r\n')
    found = list(read_examples(tmp_path / "a.csv"))
    assert [example["text"] for _, example in found] == ["one\r\ntwo", "three"]


@pytest.mark.parametrize(
    ("name", "content", "where", "complaint"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "row 2", "no JSON"),
        ("a.jsonl", b'{"text": "a"}\n\n[1]\n', "row 3", "a list"),
        ("a.jsonl", b'{"text": "a"}\n{"words": "b"}\n', "row 2", "without 'text'"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', "row 2", "not UTF-8"),
        ("a.jsonl", b'{"text": ' + b"[" * 100_000, "row 1", "nested"),
        ("a.jsonl", b'{"question": "a"}\n', "row 1", "fields"),
        ("a.json", b'[{"text": "a"}, 3]', "row 2", "a number"),
        ("a.json", b'[{"text": "a"},\n {"words": "b"}]', "row 2", "without 'text'"),
        ("a.json", b'[{"text": "a"},\n {"text": ]', "a.json", "no JSON.*line 2"),
        ("a.json", b'{"text": "a"}\n{"text": \n', "row 2", "no JSON"),
        ("a.json", b"[" * 100_000, "a.json", "nested"),
        ("a.json", b'[{"text": "a"},\n\xff]', "row 2", "not UTF-8"),
        ("a.csv", b"text,text\na,b\n", "row 1", "twice"),
        ("a.csv", b"text,n\na,1\nb\n", "row 3", "1 values"),
        ("a.csv", b'text,n\n"a"b,1\n', "row 2", "no CSV"),
        ("a.csv", b'text,n\n"a,1\n', "row 2", "no CSV"),
        ("a.parquet", b"", "a.parquet", r"\.json, \.jsonl"),
        ("examples", b"", "examples", "without an ending"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes, where: str, complaint: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=complaint) as caught:
        list(read_examples(tmp_path / name))
    assert name in caught.value.subject
    assert where in caught.value.subject


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        list(read_examples(tmp_path / "missing.jsonl"))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="directory"):
        list(read_examples(tmp_path / "folder.csv"))


def test_fields_that_cannot_be_are_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jsonl", {"question": "a"})
    with pytest.raises(ConfigError, match="answer"):
        list(read_examples(path, fields={"answer": "question"}))
    with pytest.raises(DataError, match="'reply'"):
        list(read_examples(path, fields={"prompt": "question", "completion": "reply"}))
    with pytest.raises(ConfigError, match="format"):
        list(read_examples(path, format="chat"))  # type: ignore[arg-type]
