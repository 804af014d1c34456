# SPDX-License-Identifier: Apache-2.0
"""`bespoke read`, and what commands say of rows, keys and columns of a file that they do not use."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.cli.row_options import NEED_A_NAME, ROW_FORMATS, given_fields
from bespoke.data.files import FILE_FORMATS
from bespoke.data.reading.exports.kinds import EXPORTS, WITH_ROLES
from bespoke.data.reading.known_rows import KNOWN_ROWS
from tests.unit.cli.commands import bespoke
from tests.unit.cli.conftest import Built

CHAT = (
    "31.12.23, 21:15 - Mia: Where is the key? ü\n31.12.23, 21:16 - Jonas: Under the pot.\n"
    "31.12.23, 21:17 - Jonas: <Media omitted>\n"
)
EXAMPLE = {
    "messages": [{"role": "user", "content": "Where is the key? ü"}, {"role": "assistant", "content": "Under the pot."}]
}
CLAUDE = [
    {
        "chat_messages": [
            {"sender": "human", "text": "Where is the key? ü"},
            {"sender": "assistant", "text": "Under the pot."},
        ]
    }
]
SHAREGPT = {
    "conversations": [{"from": "human", "value": "Where is the key? ü"}, {"from": "gpt", "value": "Under the pot."}],
    "id": 1,
}
ALPACA = {"instruction": "Where is", "input": "the key?", "output": "Under the pot."}


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    (tmp_path / "_chat.txt").write_text(CHAT, encoding="utf-8")
    return tmp_path / "_chat.txt"


def test_an_export_becomes_examples_on_stdout_or_in_a_file(chat: Path, tmp_path: Path) -> None:
    answer = bespoke("read", chat, "--as", "whatsapp", "--me", "Jonas").ok()
    assert [json.loads(line) for line in answer.out.splitlines()] == [EXAMPLE]
    assert answer.err == f"{chat}: 1 examples\n  left out: 1 images and other files\n"
    out = tmp_path / "examples.jsonl"
    out.write_text("older\n" * 100)
    again = bespoke("read", chat, "--as", "whatsapp", "--me", "jonas", "--out", out).ok()
    assert (again.out, again.err) == ("", answer.err)
    assert out.read_text(encoding="utf-8") == answer.out


def test_the_kinds_are_listed_readably_where_none_is_named(chat: Path) -> None:
    answer = bespoke("read", chat)
    assert answer.code == 2
    assert "\n    whatsapp,\n" in answer.err


@pytest.mark.parametrize(
    ("kind", "name", "document", "example", "said"),
    [
        ("claude", "c.json", CLAUDE, EXAMPLE, ""),
        ("sharegpt", "s.jsonl", SHAREGPT, EXAMPLE, "  unknown key 'id' in 1 rows\n"),
        ("alpaca", "a.json", [ALPACA], {"prompt": "Where is\n\nthe key?", "completion": "Under the pot."}, ""),
    ],
)
def test_other_kinds_need_no_name(
    tmp_path: Path, kind: str, name: str, document: Any, example: dict[str, Any], said: str
) -> None:
    (tmp_path / name).write_text(json.dumps(document), encoding="utf-8")
    answer = bespoke("read", tmp_path / name, "--as", kind).ok()
    assert json.loads(answer.out) == example
    assert answer.err == f"{tmp_path / name}: 1 examples\n{said}"
    refused = bespoke("read", tmp_path / name, "--as", kind, "--me", "Jonas")
    assert (refused.code, "--me: got 'Jonas'; expected no name" in refused.err) == (2, True)


def test_what_cannot_be_read_or_written_is_refused_and_nothing_is_lost(chat: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.txt"
    os.link(chat, link)
    os.mkfifo(tmp_path / "pipe.txt")
    rows = [
        (
            ("read", chat, "--as", "whatsapp"),
            2,
            "expected one of 'Mia', 'Jonas'. Name yourself as the file does: --me Mia.",
        ),
        (("read", chat, "--as", "whatsapp", "--me", "Jo"), 2, "got 'Jo', who wrote nothing in"),
        (("read", chat, "--as", "whatsapp", "--me", "Jonas", "--out", chat), 2, "got the file that is read"),
        (("read", chat, "--as", "whatsapp", "--me", "Jonas", "--out", link), 2, "got the file that is read"),
        (
            ("read", chat, "--as", "whatsapp", "--me", "Jonas", "--out", tmp_path / "no" / "x"),
            2,
            "got a folder that is not there",
        ),
        (("read", chat, "--as", "whatsapp", "--me", "Jonas", "--encoding", "klingon"), 2, "--encoding: got 'klingon'"),
        (("read", chat, "--as", "telegram", "--me", "Jonas"), 5, "got no JSON"),
        (("read", tmp_path / "nosuch", "--as", "whatsapp"), 5, "No such file"),
        (("read", tmp_path / "pipe.txt", "--as", "whatsapp"), 5, "no plain file"),
        (("read", tmp_path / "pipe.txt", "--as", "chatgpt"), 5, "no plain file"),
        (("read", chat), 2, "--as"),
    ]
    for arguments, code, said in rows:
        answer = bespoke(*arguments)
        assert (answer.code, answer.out) == (code, ""), answer
        assert said in answer.err
    assert chat.read_text(encoding="utf-8") == CHAT


def test_the_formats_of_the_command_line_are_those_of_files() -> None:
    others = {"preference", "tokens"}  # in no file that a build reads
    assert set(ROW_FORMATS) == set(FILE_FORMATS) - others
    assert set(NEED_A_NAME) == set(EXPORTS) - set(WITH_ROLES)
    assert set(KNOWN_ROWS) | set(WITH_ROLES) < set(ROW_FORMATS)
    answer = bespoke("train", "a.bundle", "--state", "s", "--examples", "a.txt", "--examples-format", "whatsapp")
    assert answer.code == 2
    assert "bespoke read FILE --as whatsapp --me NAME --out examples.jsonl" in answer.err


def test_errors_of_rows_name_options_of_the_command_line(built: Built, chat: Path, tmp_path: Path) -> None:
    table = tmp_path / "chat.csv"
    table.write_text("time,sender,text\n2024-05-01,Mia,Where?\n")
    PersonalModel.open(built.bundle, tmp_path / "s").close()
    for verb in ("train", "evaluate"):
        asked = (verb, built.bundle, "--state", tmp_path / "s", "--examples")
        answer = bespoke(*asked, table)
        assert (answer.code, "name the column that holds it: --field NAME=COLUMN" in answer.err) == (5, True), (
            answer.err
        )
        answer = bespoke(*asked, chat)
        assert f"bespoke read {chat.name} --as whatsapp --me NAME --out examples.jsonl" in answer.err
        assert "name the format text" in answer.err
        assert bespoke(*asked, chat, "--examples-format", "text").code in (0, 5)


def test_a_field_that_joins_columns_may_hold_escapes() -> None:
    given = (r"prompt={a}\n\n{b}\t\\n", r"completion=col\name", "text=x=y")
    assert given_fields(given) == {"prompt": "{a}\n\n{b}\t\\n", "completion": r"col\name", "text": "x=y"}


PAIRS = [
    {"instruction": "Once there was", "input": "a cat.", "output": "It sat."},
    {"instruction": "Once there was", "input": "a dog.", "output": ""},
    {"instruction": "Once there was", "input": "a cat.", "output": "It sat."},
    {"instruction": "Lily went", "input": None, "output": "home."},
]
SAID = ["  dropped: 1 rows, 'output' is empty", "  repeated: 1 rows are the same as an earlier one"]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps({**row, "source": "s"}) + "\n" for row in PAIRS))
    return tmp_path / "pairs.jsonl"


def test_facts_that_must_be_known_are_not_held_out(built: Built, tmp_path: Path) -> None:
    rows = [{"prompt": f"{number}?", "completion": f"It is {number}."} for number in range(30)]
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    splits = []
    for name, use in (("known", ("--use", "train")), ("judged", ())):
        asked = ("--state", tmp_path / name, "--examples", tmp_path / "facts.jsonl", *use, "--run-steps", "1")
        bespoke("train", built.bundle, *asked).ok()
        with PersonalModel.open(built.bundle, tmp_path / name) as model:
            splits.append({example.split for example in model.examples.list()})
    assert splits == [{"train"}, {"train", "validation"}]
    assert bespoke("train", built.bundle, "--state", tmp_path / "none", "--use", "train").code == 2


def test_train_and_evaluate_say_what_they_do_not_use(built: Built, pairs: Path, tmp_path: Path) -> None:
    state = ("--state", tmp_path / "s")
    asked = ("--examples", pairs, "--format", "json")
    unknown = ["  unknown key 'source' in 4 rows"]
    for there in (0, 2):
        answer = bespoke("train", built.bundle, *state, *asked, "--run-steps", "1").ok()
        assert answer.err.splitlines() == [
            f"{pairs}: {2 - there} examples added, {there} were there already",
            *SAID,
            *unknown,
        ]
    with PersonalModel.open(built.bundle, tmp_path / "s") as model:
        assert len(list(model.examples.list())) == 2
    answer = bespoke("evaluate", built.bundle, *state, *asked).ok()
    assert answer.err.splitlines() == [f"{pairs}:", *SAID, *unknown]
    assert answer.json["examples"] == 3
    mapped = ("--field", "prompt=instruction", "--field", "completion=output")
    answer = bespoke("evaluate", built.bundle, *state, *asked, *mapped).ok()
    assert answer.err.splitlines() == [f"{pairs}:", *SAID, "  unknown key 'input' in 4 rows", *unknown]
    joined = ("--field", r"prompt={instruction}\n{input}", "--field", "completion=output")
    assert bespoke("evaluate", built.bundle, *state, *asked, *joined).ok().err.splitlines() == [
        f"{pairs}:",
        *SAID,
        *unknown,
    ]
    pairs.write_text(json.dumps({**PAIRS[1]}) + "\n")
    for verb in ("train", "evaluate"):
        answer = bespoke(verb, built.bundle, *state, *asked)
        assert (answer.code, "1 rows without an answer ('output' is empty)" in answer.json["error"]["got"]) == (5, True)


def test_a_task_says_which_columns_it_does_not_use(built: Built, tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("text;label;id;by\nThe cat;sat;1;x\nThe dog;ran;2;y\n")
    asked = ("--state", tmp_path / "s", "--examples", file, "--task", "labels", "--format", "json")
    said = ["  unknown column 'by' in 2 rows", "  unknown column 'id' in 2 rows"]
    assert bespoke("train", built.bundle, *asked, "--run-steps", "1").ok().err.splitlines()[1:] == said
    assert bespoke("evaluate", built.bundle, *asked).ok().err.splitlines() == [f"{file}:", *said]


def test_of_very_many_keys_some_are_named(built: Built, tmp_path: Path) -> None:
    file = tmp_path / "wide.jsonl"
    file.write_text(
        json.dumps({"text": "Once there was a cat.", **{f"key {number:04}": 1 for number in range(5000)}}) + "\n"
    )
    answer = bespoke("train", built.bundle, "--state", tmp_path / "s", "--examples", file, "--run-steps", "1").ok()
    lines = answer.err.splitlines()
    assert lines[1] == "  unknown key 'key 0000' in 1 rows"
    assert lines[-1] == "  and 4988 more unknown keys"
    assert len(lines) == 14


def test_build_says_what_it_does_not_use(stories: Path, pairs: Path, tmp_path: Path) -> None:
    asked = ("--optimizers", "mezo", "--sequence-lengths", "16", "--rank", "2", "--licence", "MIT", "--data", pairs)
    answer = bespoke("build", tmp_path / "a.bundle", "--model", stories, *asked).ok()
    said = answer.out.splitlines()
    assert said[-3:] == [*SAID, "  unknown key 'source' in 4 rows"]
    assert "pairs.jsonl: 4 rows of prompt_completion" in said[-4]
    table = tmp_path / "pairs.csv"
    table.write_bytes("frage;antwort;nr\r\nWer bist du?;Café;1\r\nWo?;Hier;2\r\n".encode("cp1252"))
    fields = ("--field", "prompt=frage", "--field", "completion=antwort", "--encoding", "cp1252", "--format", "json")
    answer = bespoke("build", tmp_path / "b.bundle", "--model", stories, *asked[:-1], table, *fields).ok()
    assert answer.json["data"]["unknown_keys"] == {"nr": 2}
    assert (answer.json["data"]["rows"], answer.json["data"]["repeated_rows"], answer.json["data"]["left_out"]) == (
        2,
        0,
        {},
    )
    without = bespoke("build", tmp_path / "c.bundle", "--model", stories, *asked[:-1], table, *fields[:4])
    assert (without.code, "name its encoding: --encoding cp1252" in without.err) == (5, True)
