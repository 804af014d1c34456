# SPDX-License-Identifier: Apache-2.0
"""Inputs of kinds that people report, each with what becomes of it: the examples, or an error that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bespoke.data.files import ReadReport, read_examples
from bespoke.errors import DataError


def talk(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


KEY = ("Where is the key?", "Under the blue pot.")
PAIR = {"prompt": KEY[0], "completion": KEY[1]}
# file, settings, (examples, the first of them), what else is counted
READ: list[tuple[str, dict[str, Any], int, dict[str, Any], dict[str, Any]]] = [
    ("03_sharegpt/data.jsonl", {}, 8, talk(*KEY), {}),
    ("04_alpaca_input_lost/data.json", {}, 8, {"prompt": "Translate into German.\n\ncat", "completion": "Katze"}, {}),
    (
        "04_alpaca_input_lost/data.json",
        {"fields": {"prompt": "{instruction}\n\n{input}", "completion": "output"}},
        8,
        {"prompt": "Translate into German.\n\ncat", "completion": "Katze"},
        {},
    ),
    (
        "04_alpaca_input_lost/data.json",
        {"fields": {"prompt": "instruction", "completion": "output"}},
        8,
        {"prompt": "Translate into German.", "completion": "Katze"},
        {"unknown_keys": {"input": 8}},
    ),
    (
        "07_chatgpt_export/conversations.json",
        {"format": "chatgpt"},
        8,
        talk(*KEY),
        {"left_out": {"messages of system": 8}},
    ),
    ("08_claude_export/conversations.json", {"format": "claude"}, 8, talk(*KEY), {}),
    ("11_csv_semicolon/data.csv", {}, 8, PAIR, {}),
    ("14_csv_old_mac_cr/data.csv", {}, 8, PAIR, {}),
    ("14_csv_old_mac_cr/multiline.csv", {}, 8, {**PAIR, "prompt": "Where is the key?\nsecond line"}, {}),
    ("15_one_empty_answer/data.jsonl", {}, 7, talk(*KEY), {"dropped": {"a message of the assistant is empty": 1}}),
    ("15_one_empty_answer/null.jsonl", {}, 7, talk(*KEY), {"dropped": {"a message of the assistant is empty": 1}}),
    ("16_duplicates/data.jsonl", {}, 208, talk("ok?", "ok"), {"repeated_rows": 199}),
    ("19_wrapped_json/data.json", {}, 8, PAIR, {}),
    ("19_wrapped_json/columns.json", {}, 8, PAIR, {}),
    ("19_wrapped_json/nested.json", {}, 8, talk(*KEY), {}),
    ("21_endings/data.ndjson", {}, 1, {"text": "Soup with leeks is good."}, {}),
    ("21_endings/data.tsv", {}, 1, {"prompt": "Hi", "completion": "Hello"}, {}),
    ("21_endings/notes.md", {}, 1, {"text": "# Monday\n\nSoup with leeks.\n"}, {}),
    ("56_pairs_on_chat_model/pairs.jsonl", {}, 8, PAIR, {}),
]
REFUSED = [
    ("07_chatgpt_export/conversations.json", "an export of ChatGPT.*bespoke read conversations.json --as chatgpt"),
    ("08_claude_export/conversations.json", "an export of Claude.*bespoke read conversations.json --as claude"),
    ("09_telegram_export/result.json", "an export of Telegram.*bespoke read result.json --as telegram --me NAME"),
    ("09_telegram_export/oneline.json", "an export of Telegram.*bespoke read oneline.json --as telegram --me NAME"),
    ("10_whatsapp_txt/_chat.txt", "an export of WhatsApp.*bespoke read _chat.txt --as whatsapp --me NAME"),
    ("12_csv_utf16/data.csv", "row 4: got 3 values; expected 2.*double quotes"),  # the file's own fault: read so far
    ("12_csv_utf16/data_cp1252.csv", "row 2: got bytes that are not UTF-8.*encoding='cp1252'"),
    ("14_csv_old_mac_cr/nul.csv", "row 2: got a NUL byte"),
    ("21_endings/data.txt", "an empty file"),
    ("96_csv_sender_column/chat.csv", "one message in each row, by 'sender' at 'date'.*A chat in a table"),
]


@pytest.mark.parametrize(("name", "settings", "count", "first", "counted"), READ)
def test_a_kind_is_read(
    cases: Path, name: str, settings: dict[str, Any], count: int, first: dict[str, Any], counted: dict[str, Any]
) -> None:
    report = ReadReport()
    found = [example for _, example in read_examples(cases / name, report=report, **settings)]
    assert len(found) == count
    assert found[0] == first
    said = {
        key: +getattr(report, key) for key in ("unknown_keys", "dropped", "left_out", "repeated_rows")
    }  # +: without zeros
    assert {key: value for key, value in said.items() if value} == counted


@pytest.mark.parametrize(("name", "message"), REFUSED)
def test_a_kind_is_refused_by_name(cases: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_examples(cases / name))


@pytest.mark.parametrize(
    ("name", "encoding", "first"), [("data.csv", "utf-16", ""), ("data_cp1252.csv", "cp1252", "Café ")]
)
def test_a_table_in_another_encoding_is_read(cases: Path, tmp_path: Path, name: str, encoding: str, first: str) -> None:
    """The rows as they are, but for commas that nobody put into quotes."""
    text = (cases / "12_csv_utf16" / name).read_bytes().decode(encoding)
    lines = [line.split(",") for line in text.split("\r\n")]
    (tmp_path / name).write_bytes(
        "\r\n".join(",".join([line[0], "".join(line[1:])]) for line in lines if line[1:]).encode(encoding)
    )
    found = [one for _, one in read_examples(tmp_path / name, encoding="cp1252" if encoding == "cp1252" else None)]
    assert found[0] == {"prompt": KEY[0], "completion": f"{first}{KEY[1]}"}
    assert len(found) == 8


def test_a_long_cell_is_read(cases: Path) -> None:
    (found,) = read_examples(cases / "13_csv_long_field" / "data.csv")
    assert len(found[1]["text"]) > 131_072
