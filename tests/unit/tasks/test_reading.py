# SPDX-License-Identifier: Apache-2.0
"""Files to tasks: real sets of each kind, and each way in which a row can be wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import ConfigError, DataError
from bespoke.tasks import Task, read_task


def banking(data_folder: Path) -> Path:
    return data_folder / "classification" / "banking77"


def test_a_csv_of_texts_and_labels_is_a_task(data_folder: Path) -> None:
    path = banking(data_folder) / "test.csv"
    task = read_task("labels", path, fields={"label": "category"})
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(task.rows) == 3080
    assert [row.right[0] for row in task.rows] == [row["category"] for row in rows]
    assert set(task.labels) == set(json.loads((banking(data_folder) / "categories.json").read_text()))
    assert task.rows[0].number == 2  # row 1 is the header
    first = rows[0]
    assert task.examples(chat=False)[0] == {"prompt": f"{first['text']}\nLabel:", "completion": f" {first['category']}"}
    assert task.examples(chat=True)[0] == {
        "messages": [
            {"role": "user", "content": f"{first['text']}\nLabel:"},
            {"role": "assistant", "content": first["category"]},
        ]
    }


def test_function_calls_are_read_from_jsonl(data_folder: Path) -> None:
    path = data_folder / "function_calling" / "snips" / "fc_valid.jsonl"
    task = read_task("calls", path)
    given = [json.loads(line) for line in path.read_text().splitlines()]
    assert [json.loads(row.right[0]) for row in task.rows] == [one["call"] for one in given]
    assert task.rows[0].prompt == f"{given[0]['query']}\nCall:"
    assert task.labels == ()


def test_questions_have_several_right_answers(data_folder: Path) -> None:
    path = data_folder / "personas" / "student.qa.jsonl"
    task = read_task("answers", path)
    given = [json.loads(line) for line in path.read_text().splitlines()]
    assert [list(row.right) for row in task.rows] == [one["answers"] for one in given]
    example = task.examples(chat=False)[1]
    assert example == {
        "prompt": f"Question: {given[1]['question']}\nAnswer:",
        "completion": f" {given[1]['answers'][0]}",
    }


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def one_row(kind: Any, tmp_path: Path, row: dict[str, Any], **more: Any) -> Task:
    return read_task(kind, written(tmp_path / "a.jsonl", row), **more)


def test_a_prompt_is_asked_as_it_stands(tmp_path: Path) -> None:
    row = one_row("labels", tmp_path, {"prompt": "a good film. It was", "label": "great"}).rows[0]
    assert (row.prompt, row.right) == ("a good film. It was", ("great",))
    mapped = one_row(
        "calls", tmp_path, {"ask": "Play it", "call": {"name": "f", "arguments": {}}}, fields={"prompt": "ask"}
    )
    assert mapped.rows[0].prompt == "Play it"


def test_a_context_comes_before_its_question(tmp_path: Path) -> None:
    row = {"context": "Ann lives in Rome.", "question": "Where?", "answers": "Rome"}
    assert one_row("answers", tmp_path, row).rows[0].prompt == "Ann lives in Rome.\nQuestion: Where?\nAnswer:"
    assert one_row("answers", tmp_path, {**row, "context": ""}).rows[0].prompt == "Question: Where?\nAnswer:"


def test_options_are_those_of_the_row_and_labels_those_of_the_file(tmp_path: Path) -> None:
    choice = one_row("choice", tmp_path, {"question": "2 + 2?", "options": ["3", " 4 "], "answer": "4"}).rows[0]
    assert (choice.options, choice.right) == (("3", "4"), ("4",))
    file = written(tmp_path / "b.csv", "text,label", "one,pos ", "two,neg", "three, pos")
    task = read_task("labels", file)
    assert task.labels == ("neg", "pos")
    assert all(row.options == task.labels for row in task.rows)
    assert read_task("labels", file, labels=["pos", "neutral", "neg"]).labels == ("pos", "neutral", "neg")
    assert one_row("labels", tmp_path, {"text": "one", "label": 3}).labels == ("3",)


CALL = {"name": "f", "arguments": {}}


@pytest.mark.parametrize(
    ("kind", "row", "subject", "got"),
    [
        ("labels", {"text": "one"}, "row 2", "the keys 'text', without 'label'"),
        ("labels", {"label": "a"}, "row 2", "the keys 'label', without 'text'"),
        ("labels", {"text": "one", "label": ""}, "row 2: label", "an empty text"),
        ("labels", {"text": "one", "label": " "}, "row 2: label", "an empty text"),
        ("labels", {"text": "one", "label": None}, "row 2: label", "nothing"),
        ("labels", {"text": "one", "label": True}, "row 2: label", "true or false"),
        ("labels", {"text": "", "label": "a"}, "row 2: text", "an empty text"),
        ("labels", "{", "row 2", "no JSON"),
        ("choice", {"question": "q", "options": "a,b", "answer": "a"}, "row 2: options", "text"),
        ("choice", {"question": "q", "options": [], "answer": "a"}, "row 2: options", "an empty list"),
        ("choice", {"question": "q", "options": ["a"], "answer": "a"}, "row 2: options", "'a'"),
        ("choice", {"question": "q", "options": ["a", "a"], "answer": "a"}, "row 2: options", "'a', 'a'"),
        ("choice", {"question": "q", "options": ["a", 1], "answer": "a"}, "row 2: options", "a number"),
        ("choice", {"question": "q", "options": ["a", "b"], "answer": "c"}, "row 2: answer", "'c'"),
        ("choice", {"question": "q", "options": ["a", "b"], "answer": 0}, "row 2: answer", "a number"),
        ("answers", {"question": "q", "answers": []}, "row 2: answers", "an empty list"),
        ("answers", {"question": "q", "answers": ""}, "row 2: answers", "text"),
        ("answers", {"question": "q", "answers": ["a", ""]}, "row 2: answers", "an empty text"),
        ("answers", {"question": "q", "answers": ["a"], "context": 3}, "row 2: context", "a number"),
        ("calls", {"query": "q", "call": "f()"}, "row 2: call", "'f()'"),
        ("calls", {"query": "q", "call": {"name": "f"}}, "row 2: call", "{'name': 'f'}"),
        ("calls", {"query": "q", "call": '{"name": "f", "arguments": {"a": 1e999}}'}, "row 2: call", "'{"),
        ("labels", {"prompt": "p", "text": "t", "label": "a"}, "row 2", "both 'prompt' and 'text'"),
        ("answers", {"prompt": "p", "context": "c", "answers": "a"}, "row 2", "both 'prompt' and 'context'"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path: Path, kind: Any, row: Any, subject: str, got: str) -> None:
    fine = {
        "labels": {"text": "one", "label": "a"},
        "choice": {"question": "q", "options": ["a", "b"], "answer": "a"},
        "answers": {"question": "q", "answers": ["a"]},
        "calls": {"query": "q", "call": CALL},
    }
    path = written(tmp_path / "rows.jsonl", fine[kind], row)
    with pytest.raises(DataError) as caught:
        read_task(kind, path)
    assert caught.value.subject == f"{path}, {subject}"
    assert caught.value.got.startswith(got)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_call_with_a_number_that_json_lacks_is_refused(tmp_path: Path, number: str) -> None:
    """Python reads all of them."""
    path = written(
        tmp_path / "rows.jsonl", f'{{"query": "q", "call": {{"name": "f", "arguments": {{"a": [{number}]}}}}}}'
    )
    with pytest.raises(DataError, match=r"row 1: call: .*finite numbers"):
        read_task("calls", path)


def test_a_mapped_column_does_not_lose_to_a_column_that_is_called_prompt(tmp_path: Path) -> None:
    row = {"prompt": "You are a bank.", "question": "My card is gone", "label": "card"}
    with pytest.raises(DataError, match="row 1: got both 'prompt' and 'text'; expected one of the two"):
        one_row("labels", tmp_path, row, fields={"text": "question"})
    empty = one_row("labels", tmp_path, {**row, "question": ""}, fields={"text": "question"})
    assert empty.rows[0].prompt == "You are a bank."


def test_a_label_that_is_not_among_those_named_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "text,label", "one,a", "two,b")
    with pytest.raises(DataError, match=r"row 3: label: got 'b'; expected one of 'a', 'c'"):
        read_task("labels", path, labels=["a", "c"])


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows"):
        read_task("labels", written(tmp_path / "rows.csv", "text,label"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"kind": "sentiment"}, "kind: got 'sentiment'; expected 'labels' or 'choice' or 'answers' or 'calls'"),
        (
            {"fields": {"completion": "label"}},
            r"fields\['completion'\]: got 'label'; expected one of text, label, prompt",
        ),
        ({"labels": "a,b"}, "labels: got 'a,b'; expected different texts"),
        ({"labels": ["a", "a"]}, "different texts"),
        ({"labels": ["a", 3]}, "different texts"),
        ({"kind": "calls", "labels": ["a", "b"]}, "for a task of kind 'labels'"),
    ],
)
def test_arguments_that_cannot_be_are_named(tmp_path: Path, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_task(**{"kind": "labels", "path": written(tmp_path / "rows.csv", "text,label", "one,a"), **arguments})


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'category', which fields names for 'label'"):
        one_row("labels", tmp_path, {"text": "one", "label": "a"}, fields={"label": "category"})
